/* blk_base.h — the map of a node-local base of an image: which blocks of 512 KiB it has.
 * Not here: filling it (viperblock/base.c), reading through it (blk_cow.c).
 * Threads:  one writer (the manager), many readers in other processes, over a shared mapping.
 * Memory:   base_map_open() gives.
 * Errors:   -EINVAL "BadBaseMap"; -EIO.
 * Format:   docs/formats/volume-map.md. A bit is set only after the block's bytes are durable in
 * the
 *           base's file; a complete base says so in its head. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct base_map;
MUST_CHECK int base_map_create(int fd, uint64_t size, bool is_complete, struct err *err);
MUST_CHECK int base_map_open(int fd, bool is_writer, struct base_map **ret, struct err *err);
void base_map_close(struct base_map *m);
bool base_map_has(const struct base_map *m, uint64_t block);
uint64_t base_map_size(const struct base_map *m); /* bytes of the disk */
uint64_t base_map_n_absent(const struct base_map *m);
/* After fdatasync of the base's data. Durable when it returns. */
MUST_CHECK int base_map_set(struct base_map *m, uint64_t block, struct err *err);
