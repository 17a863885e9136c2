/* rand.h — random bytes from the kernel.
 * Not here: a seeded generator for tests (testkit/).
 * Threads:  any.
 * Memory:   fills buffers of the caller.
 * Errors:   aborts when the kernel gives no random bytes: nothing safe can go on. */
#pragma once
#include "base/macro.h"
#include <stddef.h>
#include <stdint.h>

void rand_bytes(void *p, size_t n);
uint64_t rand_u64(void);
/* Writes 'n' lower-case hex digits and a NUL: resource ids are "i-" and 17 of them. */
void rand_hex(char *p, size_t n);
