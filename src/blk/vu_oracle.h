/* vu_oracle.h — what a disk must answer: a version of every block, stamped into the block
 *               itself, so that a read tells lost, stale, misplaced and torn writes apart.
 * Not here: I/O (vu_load.h).
 * Threads:  any, as long as no two touch a block at the same time (vu_oracle_begin() says so).
 * Memory:   vu_oracle_new() gives; 8 bytes per block of 4 KiB.
 * Errors:   the first contradiction is kept as text (vu_oracle_why()) and everything after it
 *           fails. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

#define VU_ORACLE_BLOCK 4096u

struct vu_oracle;
enum vu_oracle_op { VU_ORACLE_READ, VU_ORACLE_WRITE, VU_ORACLE_ZEROES, VU_ORACLE_DISCARD };

/* All blocks are zeros at the beginning. */
MUST_CHECK int vu_oracle_new(uint64_t n_blocks, uint64_t seed, struct vu_oracle **ret,
                             struct err *err);
void vu_oracle_free(struct vu_oracle *o);
/* Starts an operation on blocks; stamps 'buf' for a write. false: one of them is in use. */
bool vu_oracle_begin(struct vu_oracle *o, enum vu_oracle_op op, uint64_t block, uint64_t n,
                     void *buf);
/* It is over with success: a read is compared, others count from now on. -EBADMSG. */
MUST_CHECK int vu_oracle_end(struct vu_oracle *o, enum vu_oracle_op op, uint64_t block,
                             uint64_t n, const void *buf);
const char *vu_oracle_why(const struct vu_oracle *o); /* "" when all is well */
/* Any caller's own contradiction ("a request ended twice"). Always -EBADMSG. */
int vu_oracle_blame(struct vu_oracle *o, const char *fmt, ...) PRINTF_LIKE(2, 3);
