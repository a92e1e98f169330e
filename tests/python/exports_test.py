# SPDX-License-Identifier: Apache-2.0
"""Addresses and bytes that leave PyTorch while a session moves tensors about."""

import copy
import ctypes
import gc
import io
import multiprocessing
import pickle

import numpy
import pytest
import torch

import plimsoll

BUDGET = 1 << 20
ENTRY = 65536  # floats: a quarter of the budget


class Pressed:
    """A session with eight tensors of a quarter of the budget each, so that most are evicted."""

    def __enter__(self):
        self.session = plimsoll.session(BUDGET)
        self.session.__enter__()
        self.tensors = [torch.full((ENTRY,), float(i)) for i in range(8)]
        self.press()
        return self

    def press(self):
        with self.session.step():
            for tensor in self.tensors:
                tensor.add_(0)

    def __exit__(self, *error):
        return self.session.__exit__(*error)


def test_a_numpy_array_shows_what_operators_write_for_as_long_as_it_lives():
    with Pressed() as p:
        array = p.tensors[0].numpy()
        assert array[0] == 0.0
        for _ in range(3):
            with p.session.step():
                for tensor in p.tensors:
                    tensor.add_(1)
        assert array[0] == 3.0 and array[-1] == 3.0
        array[5] = 77.0
        with p.session.step():
            assert p.tensors[0][5].item() == 77.0


def test_a_view_of_an_array_keeps_its_address_after_the_array_is_gone():
    with Pressed() as p:
        view = p.tensors[0].numpy()[10:20]
        gc.collect()
        for _ in range(3):
            with p.session.step():
                for tensor in p.tensors:
                    tensor.add_(1)
        assert view.tolist() == [3.0] * 10


def test_an_array_outlives_its_session():
    with Pressed() as p:
        array = p.tensors[2].numpy()
        tensors = p.tensors
    gc.collect()
    torch.full((1 << 20,), 9.0)
    assert array[0] == 2.0
    tensors[2].add_(1)
    assert array[0] == 3.0
    with plimsoll.session(BUDGET) as second:
        with second.step():
            tensors[2].add_(1)
    assert array[0] == 4.0


def test_an_array_that_is_gone_no_longer_pins():
    with Pressed() as p:
        for _ in range(3):
            # Eight of a quarter each cannot be pinned at once.
            for tensor in p.tensors:
                assert tensor.numpy()[0] == tensor[0].item()
            p.press()
        with pytest.raises(torch.OutOfMemoryError):
            _ = [tensor.numpy() for tensor in p.tensors]
        p.press()


def test_asarray_and_copies_of_evicted_tensors_are_right():
    with Pressed() as p:
        for i, tensor in enumerate(p.tensors):
            assert numpy.asarray(tensor)[3] == i
            assert tensor.numpy().copy().sum() == i * ENTRY
            assert tensor.numpy(force=True)[0] == i
            assert tensor[:3].tolist() == [float(i)] * 3


def test_what_comes_from_numpy_stays_where_it_is_and_is_counted():
    array = numpy.zeros(1000, dtype=numpy.float32)
    tensor = torch.from_numpy(array)
    with Pressed() as p:
        with p.session.step():
            tensor.add_(1)
        p.press()
        assert array.sum() == 1000
        assert p.session.report().foreign_bytes == 4032


def test_dlpack_shares_bytes_both_ways():
    with Pressed() as p:
        shared = torch.from_dlpack(p.tensors[1])
        other = numpy.from_dlpack(p.tensors[3])
        for _ in range(2):
            with p.session.step():
                for tensor in p.tensors:
                    tensor.add_(1)
        with p.session.step():
            assert shared[0].item() == 3.0
        assert other[7] == 5.0
    assert other[7] == 5.0 and shared[7].item() == 3.0


def test_data_ptr_is_good_until_the_next_step():
    with Pressed() as p:
        address = p.tensors[4].data_ptr()
        (p.tensors[5] + 0), (p.tensors[6] + 0)
        values = (ctypes.c_float * 4).from_address(address)
        assert list(values) == [4.0] * 4
        p.press()


def test_pin_holds_until_unpin():
    with Pressed() as p:
        p.session.pin(p.tensors[0])
        address = p.tensors[0].data_ptr()
        p.press()
        assert p.tensors[0].data_ptr() == address
        assert list((ctypes.c_float * 2).from_address(address)) == [0.0, 0.0]
        p.session.unpin(p.tensors[0])
        p.press()


@pytest.mark.parametrize("zipped", [True, False])
def test_evicted_tensors_are_saved_and_loaded(zipped):
    with Pressed() as p:
        file = io.BytesIO()
        torch.save({"tensors": p.tensors, "again": p.tensors[0]}, file,
                   _use_new_zipfile_serialization=zipped)
        file.seek(0)
        loaded = torch.load(file)
        assert p.session.report().peak_bytes <= BUDGET
    for i, tensor in enumerate(loaded["tensors"]):
        assert bool((tensor == i).all())
    assert loaded["again"].untyped_storage().data_ptr() == loaded["tensors"][0].untyped_storage().data_ptr()


def test_evicted_tensors_are_pickled_and_copied():
    with Pressed() as p:
        pickled = pickle.loads(pickle.dumps(p.tensors))
        copied = copy.deepcopy(p.tensors)
        cloned = [copy.copy(tensor.untyped_storage().clone()) for tensor in p.tensors]
    for i in range(8):
        assert bool((pickled[i] == i).all()) and bool((copied[i] == i).all())
        assert torch.tensor([]).set_(cloned[i])[0] == i


def child_adds(queue, tensor):
    tensor.add_(1)
    queue.put(tensor[0].item())


def test_shared_memory_is_shared_and_not_moved():
    with Pressed() as p:
        tensor = p.tensors[3].share_memory_()
        p.press()
        context = multiprocessing.get_context("spawn")
        queue = context.Queue()
        child = context.Process(target=child_adds, args=(queue, tensor))
        child.start()
        assert queue.get(timeout=60) == 4.0
        child.join(60)
        with p.session.step():
            assert tensor[5].item() == 4.0


def test_the_storage_of_an_evicted_tensor_can_be_read_and_written():
    with Pressed() as p:
        for i, tensor in enumerate(p.tensors):
            storage = tensor.untyped_storage()
            assert len(bytes(storage[:4].tolist())) == 4
            storage[0] = 0
            storage.fill_(0) if i == 7 else None
        with p.session.step():
            assert p.tensors[7].abs().sum().item() == 0


def test_a_tensor_is_set_to_the_storage_of_an_evicted_one():
    with Pressed() as p:
        storages = [tensor.untyped_storage() for tensor in p.tensors]
        del p.tensors[:]
        with p.session.step():
            for i, storage in enumerate(storages):
                tensor = torch.empty(0).set_(storage)
                tensor.add_(1)
                assert tensor.shape == (ENTRY,) and tensor[7].item() == i + 1
        assert p.session.report().peak_bytes <= BUDGET
    assert torch.empty(0).set_(storages[7])[0].item() == 8


def test_strict_pointers_raise_where_an_address_would_go_stale():
    if torch.__version__.startswith("2.11."):  # it cannot lift the ban on an address again
        with pytest.raises(NotImplementedError, match="strict_pointers"):
            with plimsoll.session(BUDGET, strict_pointers=True):
                pass
        return
    with plimsoll.session(BUDGET, strict_pointers=True) as session:
        with session.step():
            tensor = torch.ones(10) + 1
        # As an extension would, which no method of a tensor tells of it.
        with pytest.raises(RuntimeError, match="strict_pointers.*pin"):
            torch._C._data_address(tensor)
        session.pin(tensor)
        assert torch._C._data_address(tensor) == tensor.data_ptr()
        assert tensor.numpy()[0] == 2.0
        session.unpin(tensor)


def test_a_tensor_made_by_a_session_lives_on_in_the_next_and_without_one():
    with Pressed() as p:
        tensors = p.tensors
    with plimsoll.session(BUDGET // 2 + BUDGET // 4) as second:
        with second.step():
            for tensor in tensors:
                tensor.mul_(2)
    assert [tensor[0].item() for tensor in tensors] == [2.0 * i for i in range(8)]


def test_what_was_shown_to_numpy_before_is_moved_once_the_array_is_gone():
    tensors = [torch.full((ENTRY,), float(i)) for i in range(8)]
    kept = tensors[0].numpy()
    again = tensors[0].numpy()
    del kept
    for tensor in tensors[1:]:
        assert tensor.numpy()[0] == tensor[0].item()
    gc.collect()
    with plimsoll.session(BUDGET) as session:
        for _ in range(2):
            with session.step():
                for tensor in tensors:
                    tensor.add_(1)
        assert session.report().foreign_bytes == 4 * ENTRY
    assert again[0] == 2.0 and tensors[7][0].item() == 9.0


def test_methods_are_pytorchs_own_again_after_a_session():
    before = {name: getattr(torch.Tensor, name) for name in ("data_ptr", "__dlpack__", "tolist")}
    save, copy_ = torch.save, torch.UntypedStorage.copy_
    with Pressed():
        assert torch.Tensor.data_ptr is not before["data_ptr"]
        assert torch.Tensor.data_ptr.__doc__ == before["data_ptr"].__doc__
    assert {name: getattr(torch.Tensor, name) for name in before} == before
    assert torch.save is save and torch.UntypedStorage.copy_ is copy_
