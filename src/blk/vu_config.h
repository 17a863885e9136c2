/* vu_config.h — what the device says about itself: feature bits and the virtio-blk
 *          configuration.
 * Not here: negotiation (vu.c).
 * Threads:  no state.
 * Memory:   fills the caller's.
 * Errors:   none.
 * Source:   virtio 1.2 section 5.2.4. */
#pragma once
#include "blk/vu_msg.h"
#include <stdbool.h>

uint64_t vu_config_features(bool is_read_only);
uint64_t vu_config_protocol(void);
void vu_config_fill(uint64_t size, unsigned n_queues, uint8_t ret[VU_MAX_CONFIG]);
