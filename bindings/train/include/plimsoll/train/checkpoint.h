// SPDX-License-Identifier: Apache-2.0
// Saves a run to a file and takes it up again, bit for bit.
//
// The file: a line "PLIMSOLL RUN 1", the length of a JSON header as eight little-endian bytes, the
// header (model, optimizer, data, position, names and shapes), every tensor's bytes in order, and
// the CRC-32 of all before it in four bytes.
#pragma once

#include <filesystem>
#include <string>

#include "plimsoll/train/trainer.h"

namespace plimsoll::train {

// Writes the run, whole or not at all (a temporary beside it, then a rename).
// Errors: InvalidArgument where the file cannot be written, HostOutOfMemory where the disk is full.
void save_run(const Trainer& trainer, const std::string& data_name,
              const std::filesystem::path& path);

// Puts `trainer`, freshly made, where the saved run was.
// Errors: InvalidFile for a file that is none of ours, truncated or damaged (naming the byte);
// InvalidArgument for one of another model, optimizer, data, batch, seed or precision.
void resume_run(Trainer& trainer, const std::string& data_name, const std::filesystem::path& path);

}  // namespace plimsoll::train
