/* num.h — numbers from text, strictly.
 * Not here: sizes with units (codec/toml).
 * Threads:  no state.
 * Memory:   none.
 * Errors:   0, -EINVAL (not only digits) or -ERANGE; *ret is untouched on failure. White space
 *           and '+' are refused; leading zeros are not ("007" is 7). */
#pragma once
#include "base/macro.h"
#include "base/str.h"
#include <stdint.h>

MUST_CHECK int num_u64(struct str s, uint64_t max, uint64_t *ret);
MUST_CHECK int num_i64(struct str s, int64_t min, int64_t max, int64_t *ret);
MUST_CHECK int num_hex_u64(struct str s, uint64_t max, uint64_t *ret);
