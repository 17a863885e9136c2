#include "blk/vu_config.h"
#include "blk/blk.h"
#include "blk/vu_request.h"
#include <linux/virtio_blk.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <string.h>

#define BIT(n)      (UINT64_C(1) << (n))

/* A guest that discards its whole disk asks often enough for others to get their turn. */
#define MAX_ZEROES  ((128u << 20) / BLK_SECTOR)
#define OPTIMAL_LEN (512u << 10) /* of a snapshot's block, and of a bounce buffer */

uint64_t vu_config_features(bool is_read_only)
{
    return BIT(VIRTIO_F_VERSION_1) | BIT(VU_F_PROTOCOL_FEATURES) |
           BIT(VIRTIO_RING_F_EVENT_IDX) | BIT(VIRTIO_RING_F_INDIRECT_DESC) |
           BIT(VIRTIO_BLK_F_SEG_MAX) | BIT(VIRTIO_BLK_F_BLK_SIZE) | BIT(VIRTIO_BLK_F_FLUSH) |
           BIT(VIRTIO_BLK_F_TOPOLOGY) | BIT(VIRTIO_BLK_F_MQ) |
           (is_read_only ? BIT(VIRTIO_BLK_F_RO)
                         : BIT(VIRTIO_BLK_F_DISCARD) | BIT(VIRTIO_BLK_F_WRITE_ZEROES));
}

uint64_t vu_config_protocol(void)
{
    return BIT(VU_PROTOCOL_MQ) | BIT(VU_PROTOCOL_REPLY_ACK) | BIT(VU_PROTOCOL_BACKEND_REQ) |
           BIT(VU_PROTOCOL_CONFIG) | BIT(VU_PROTOCOL_INFLIGHT);
}

void vu_config_fill(uint64_t size, unsigned n_queues, uint8_t ret[VU_MAX_CONFIG])
{
    const uint16_t page_sectors = BLK_PAGE / BLK_SECTOR;
    struct virtio_blk_config c = {
        .capacity = size / BLK_SECTOR,
        .seg_max = VU_SEG_MAX,
        .blk_size = BLK_SECTOR,
        .physical_block_exp = (uint8_t)__builtin_ctz(page_sectors),
        .min_io_size = page_sectors,
        .opt_io_size = OPTIMAL_LEN / BLK_SECTOR,
        .num_queues = (uint16_t)n_queues,
        .max_discard_sectors = MAX_ZEROES,
        .max_discard_seg = VU_MAX_RANGES,
        .discard_sector_alignment = page_sectors,
        .max_write_zeroes_sectors = MAX_ZEROES,
        .max_write_zeroes_seg = VU_MAX_RANGES,
        .write_zeroes_may_unmap = 1,
    };
    _Static_assert(sizeof(c) <= VU_MAX_CONFIG, "the configuration fits its message");
    memset(ret, 0, VU_MAX_CONFIG);
    memcpy(ret, &c, sizeof(c));
}
