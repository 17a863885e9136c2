/* vu_client_int.h — inside of the frontend, for its two files and for tests that break rules.
 * Not here: what others use (vu_client.h).
 * Threads:  a queue belongs to its thread; the connection to whoever connects.
 * Memory:   everything belongs to the client.
 * Errors:   as vu_client.h. */
#pragma once
#include "blk/vu_client.h"
#include "blk/vu_msg.h"
#include <linux/virtio_ring.h>
#include <stddef.h>

#define VU_CLIENT_GPA UINT64_C(0x40000000) /* of the first byte: unlike our own addresses */

struct vu_client_slot { /* what a request needs beside its data; shared with the server */
    struct vring_desc table[3];
    struct {
        uint32_t type, ioprio;
        uint64_t sector;
    } head;
    struct {
        uint64_t sector;
        uint32_t n, flags;
    } range;
    uint8_t status, pad[47];
};

struct vu_client_queue {
    unsigned idx, n_slots;
    uint16_t num, avail_idx, kicked_idx, last_used;
    struct vring_desc *desc;
    struct vring_avail *avail;
    struct vring_used *used;
    struct vu_client_slot *slots;
    int kick_fd, call_fd, err_fd;
    uint64_t *tags;
    bool *is_busy;
    unsigned *free_slots, n_free;
    bool has_more; /* used entries that the last wait had no room for */
};

struct vu_client {
    struct vu_client_opts o;
    int sock, mem_fd, inflight_fd;
    struct vu_inflight_msg inflight;
    uint64_t features, protocol, size, map_size;
    uint8_t *map; /* rings, slots, then the buffers */
    uint64_t data_off;
    struct vu_client_queue *queues;
};

/* Sends a message with descriptors; with 'reply' waits for the answer (*ret_fd when one
 * came). */
MUST_CHECK int vu_client_call(struct vu_client *c, struct vu_msg *m, const int *fds,
                              size_t n_fds, struct vu_msg *reply, int *ret_fd);
/* A message of one number, answered by its REPLY_ACK: -EREMOTEIO when refused. */
MUST_CHECK int vu_client_ack(struct vu_client *c, struct vu_msg *m, const int *fds,
                             size_t n_fds);
uint64_t vu_client_gpa(const struct vu_client *c, const void *p);
MUST_CHECK int vu_client_start_ring(struct vu_client *c, unsigned queue);
/* Rings: bytes they take, laying them out at 'p'. */
uint64_t vu_client_ring_size(uint16_t num);
void vu_client_ring_init(struct vu_client_queue *q, uint8_t *p, const struct vu_client_opts *o);
