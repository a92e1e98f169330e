# SPDX-License-Identifier: Apache-2.0
"""Networks that people take from PyPI, at their own code, small and with random weights.

Each is made by a function without arguments and does one training step: forward, loss, backward,
clipping, AdamW.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
if not Path(PACKAGES := os.environ.get("PLIMSOLL_REAL_PACKAGES", "")).is_dir() or not PACKAGES:
    raise RuntimeError(f"PLIMSOLL_REAL_PACKAGES is {PACKAGES!r}, no folder; ./dev test installs the packages and sets it")
sys.path.append(PACKAGES)
# Nothing is fetched: all configurations are made here.
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1",
                  TOKENIZERS_PARALLELISM="false")

import torch  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from equality import Program, model_state  # noqa: E402


def trained(model: torch.nn.Module, loss_of: Callable[[], torch.Tensor]) -> Program:
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step() -> float:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return Program(step, lambda: model_state(model, optimizer))


def classified(model: torch.nn.Module, size: int, batch: int = 2, frames: int = 0) -> Program:
    shape = (batch, 3, frames, size, size) if frames else (batch, 3, size, size)
    x, y = torch.randn(shape), torch.arange(batch) % 10
    return trained(model, lambda: F.cross_entropy(model(x), y))


def torchvision_classifier(name: str, size: int = 64, **arguments: Any) -> Callable[[], Program]:
    def make() -> Program:
        import torchvision

        torch.manual_seed(0)
        return classified(torchvision.models.get_model(name, weights=None, num_classes=10, **arguments), size)

    return make


def torchvision_segmentation(name: str) -> Callable[[], Program]:
    def make() -> Program:
        import torchvision

        torch.manual_seed(0)
        model = torchvision.models.get_model(name, weights=None, weights_backbone=None, num_classes=5)
        x, y = torch.randn(2, 3, 64, 64), torch.randint(0, 5, (2, 64, 64))
        return trained(model, lambda: F.cross_entropy(model(x)["out"], y))

    return make


def torchvision_detection() -> Program:
    import torchvision

    torch.manual_seed(0)
    model = torchvision.models.get_model("ssdlite320_mobilenet_v3_large", weights=None, weights_backbone=None,
                                         num_classes=5)
    x = [torch.rand(3, 160, 160), torch.rand(3, 128, 160)]
    y = [{"boxes": torch.tensor([[10.0, 10, 60, 80]]), "labels": torch.tensor([1])},
         {"boxes": torch.tensor([[5.0, 20, 90, 70], [30, 30, 50, 90]]), "labels": torch.tensor([2, 3])}]
    return trained(model, lambda: sum(model(x, y).values()))


def torchvision_video() -> Program:
    import torchvision

    torch.manual_seed(0)
    return classified(torchvision.models.get_model("r3d_18", weights=None, num_classes=10), 32, frames=4)


def timm_classifier(name: str, size: int = 64, **arguments: Any) -> Callable[[], Program]:
    def make() -> Program:
        import timm

        torch.manual_seed(0)
        return classified(timm.create_model(name, pretrained=False, num_classes=10, **arguments), size)

    return make


def text(rows: int = 4, length: int = 48, words: int = 200) -> torch.Tensor:
    return torch.randint(3, words, (rows, length))


def transformers_model(kind: str) -> Callable[[], Program]:
    return lambda: _TRANSFORMERS[kind]()


def _bert() -> Program:
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    model = BertForMaskedLM(BertConfig(vocab_size=200, hidden_size=64, num_hidden_layers=4, num_attention_heads=4,
                                       intermediate_size=256, max_position_embeddings=64))
    ids = text()
    return trained(model, lambda: model(input_ids=ids, labels=ids).loss)


def _gpt2() -> Program:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=200, n_embd=64, n_layer=4, n_head=4, n_positions=64))
    ids = text()
    return trained(model, lambda: model(input_ids=ids, labels=ids).loss)


def _llama() -> Program:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=200, hidden_size=64, intermediate_size=172, num_hidden_layers=4,
                                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64))
    ids = text()
    return trained(model, lambda: model(input_ids=ids, labels=ids, use_cache=False).loss)


def _t5() -> Program:
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    model = T5ForConditionalGeneration(T5Config(vocab_size=200, d_model=64, d_kv=16, d_ff=128, num_layers=3, num_heads=4,
                                                decoder_start_token_id=0))
    ids = text()
    return trained(model, lambda: model(input_ids=ids, labels=ids[:, :24].contiguous()).loss)


def _mixtral() -> Program:
    from transformers import MixtralConfig, MixtralForCausalLM

    torch.manual_seed(0)
    model = MixtralForCausalLM(MixtralConfig(
        vocab_size=200, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=64))
    ids = text()
    return trained(model, lambda: model(input_ids=ids, labels=ids, use_cache=False).loss)


def _mamba() -> Program:
    from transformers import MambaConfig, MambaForCausalLM

    torch.manual_seed(0)
    model = MambaForCausalLM(MambaConfig(vocab_size=200, hidden_size=48, state_size=8, num_hidden_layers=3))
    ids = text(2, 24)
    return trained(model, lambda: model(input_ids=ids, labels=ids, use_cache=False).loss)


def _whisper() -> Program:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    torch.manual_seed(0)
    model = WhisperForConditionalGeneration(WhisperConfig(
        vocab_size=200, num_mel_bins=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, d_model=64, encoder_ffn_dim=128, decoder_ffn_dim=128, max_source_positions=50,
        max_target_positions=48, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1))
    sound, ids = torch.randn(2, 16, 100), text(2, 24)
    return trained(model, lambda: model(input_features=sound, labels=ids, use_cache=False).loss)


def _vit() -> Program:
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(0)
    model = ViTForImageClassification(ViTConfig(hidden_size=64, num_hidden_layers=4, num_attention_heads=4,
                                                intermediate_size=256, image_size=64, patch_size=8, num_labels=10))
    x, y = torch.randn(4, 3, 64, 64), torch.arange(4)
    return trained(model, lambda: model(pixel_values=x, labels=y).loss)


def _clip() -> Program:
    from transformers import CLIPConfig, CLIPModel

    torch.manual_seed(0)
    layers = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4}
    model = CLIPModel(CLIPConfig(
        text_config={**layers, "vocab_size": 200, "max_position_embeddings": 32, "eos_token_id": 2, "bos_token_id": 1,
                     "pad_token_id": 0},
        vision_config={**layers, "image_size": 64, "patch_size": 8}, projection_dim=32))
    ids, images = text(4, 16), torch.randn(4, 3, 64, 64)
    return trained(model, lambda: model(input_ids=ids, pixel_values=images, return_loss=True).loss)


_TRANSFORMERS = {"bert": _bert, "gpt2": _gpt2, "llama": _llama, "t5": _t5, "mixtral": _mixtral, "mamba": _mamba,
                 "whisper": _whisper, "vit": _vit, "clip": _clip}


def graph_network(kind: str) -> Callable[[], Program]:
    def make() -> Program:
        from torch_geometric.nn import GATConv, GCNConv

        torch.manual_seed(0)
        layer = {"gcn": lambda i, o: GCNConv(i, o), "gat": lambda i, o: GATConv(i, o // 4, heads=4)}[kind]
        layers = torch.nn.ModuleList([layer(32 if i == 0 else 64, 64) for i in range(5)])
        head = torch.nn.Linear(64, 7)
        model = torch.nn.ModuleList([layers, head])
        x, edges, y = torch.randn(600, 32), torch.randint(0, 600, (2, 4000)), torch.randint(0, 7, (600,))

        def loss() -> torch.Tensor:
            h = x
            for convolution in layers:
                h = F.dropout(F.elu(convolution(h, edges)), 0.2)
            return F.cross_entropy(head(h), y)

        return trained(model, loss)

    return make


def transformers_trainer() -> Program:
    """The Trainer's own loop: three optimizer steps with accumulation, clipping and a schedule."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=200, n_embd=64, n_layer=4, n_head=4, n_positions=64))
    rows = [{"input_ids": row, "labels": row} for row in text(12, 32)]
    folder = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"plimsoll-trainer-{os.getpid()}")
    arguments = TrainingArguments(output_dir=folder, per_device_train_batch_size=2, gradient_accumulation_steps=2,
                                  max_steps=3, report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True,
                                  logging_steps=1, seed=7, dataloader_pin_memory=False)
    trainer = Trainer(model=model, args=arguments, train_dataset=rows)

    def step() -> float:
        return trainer.train().training_loss

    return Program(step, lambda: model_state(model), drives_itself=True)


def lightning_trainer() -> Program:
    import lightning

    torch.manual_seed(0)

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(96, 96), torch.nn.BatchNorm1d(96),
                                                                 torch.nn.ReLU()) for _ in range(5)],
                                           torch.nn.Linear(96, 5))

        def training_step(self, rows: Any, index: int) -> torch.Tensor:
            x, y = rows
            return F.cross_entropy(self.net(x), y)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), 1e-3)

    model = Module()
    data = torch.utils.data.TensorDataset(torch.randn(192, 96), torch.randint(0, 5, (192,)))
    loader = torch.utils.data.DataLoader(data, batch_size=64)

    def step() -> None:
        trainer = lightning.Trainer(max_steps=3, accelerator="cpu", gradient_clip_val=1.0, logger=False,
                                    enable_checkpointing=False, enable_progress_bar=False,
                                    enable_model_summary=False, barebones=False)
        trainer.fit(model, loader)

    return Program(step, lambda: model_state(model), drives_itself=True)


TORCHVISION = {
    name: torchvision_classifier(name, **arguments) for name, arguments in {
        "alexnet": {}, "convnext_tiny": {}, "densenet121": {}, "efficientnet_b0": {}, "efficientnet_v2_s": {},
        "googlenet": {"aux_logits": False, "init_weights": False},
        "inception_v3": {"size": 96, "aux_logits": False, "init_weights": False}, "mnasnet1_0": {},
        "mobilenet_v2": {}, "mobilenet_v3_large": {}, "mobilenet_v3_small": {}, "regnet_x_400mf": {},
        "regnet_y_400mf": {}, "resnet18": {}, "resnet50": {}, "resnext50_32x4d": {}, "shufflenet_v2_x1_0": {},
        "squeezenet1_1": {}, "swin_t": {}, "vgg11_bn": {}, "vit_b_16": {"image_size": 64}, "wide_resnet50_2": {},
    }.items()}

TIMM = {
    name: timm_classifier(name, **arguments) for name, arguments in {
        "convnext_atto": {}, "convnextv2_atto": {}, "cspresnet50": {}, "deit_tiny_patch16_224": {"img_size": 64},
        "dla34": {}, "ecaresnet26t": {}, "edgenext_xx_small": {}, "efficientnet_lite0": {}, "fbnetc_100": {},
        "ghostnet_100": {}, "hrnet_w18_small": {}, "mixer_s32_224": {"img_size": 64}, "mobilenetv4_conv_small": {},
        "mobilevit_xxs": {}, "poolformer_s12": {}, "repvgg_a0": {}, "resnet10t": {}, "seresnext26d_32x4d": {},
        "vit_tiny_patch16_224": {"img_size": 64}, "xcit_nano_12_p16_224": {"img_size": 64},
    }.items()}

PROGRAMS: dict[str, Callable[[], Program]] = {
    **{f"torchvision.{name}": make for name, make in TORCHVISION.items()},
    "torchvision.lraspp_mobilenet_v3_large": torchvision_segmentation("lraspp_mobilenet_v3_large"),
    "torchvision.deeplabv3_mobilenet_v3_large": torchvision_segmentation("deeplabv3_mobilenet_v3_large"),
    "torchvision.ssdlite320_mobilenet_v3_large": torchvision_detection,
    "torchvision.r3d_18": torchvision_video,
    **{f"timm.{name}": make for name, make in TIMM.items()},
    **{f"transformers.{name}": transformers_model(name) for name in _TRANSFORMERS},
    "transformers.Trainer": transformers_trainer,
    "torch_geometric.GCN": graph_network("gcn"),
    "torch_geometric.GAT": graph_network("gat"),
    "lightning.Trainer": lightning_trainer,
}

# What CI runs: one of each family, the quick ones.
SUBSET = ["torchvision.mobilenet_v3_small", "torchvision.resnet18", "torchvision.squeezenet1_1",
          "timm.convnext_atto", "timm.vit_tiny_patch16_224", "transformers.bert", "transformers.llama",
          "transformers.Trainer", "torch_geometric.GAT", "lightning.Trainer"]
