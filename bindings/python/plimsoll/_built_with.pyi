# SPDX-License-Identifier: Apache-2.0
TORCH: str
VERSION: str
