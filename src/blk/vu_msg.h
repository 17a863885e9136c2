/* vu_msg.h — messages of the vhost-user protocol: what they look like and which are
 *          well-formed.
 * Not here: sockets and what a message does (vu.c, vu_client.c).
 * Threads:  no state.
 * Memory:   plain values; descriptors that came with a message are the caller's.
 * Errors:   -EPROTO with the reason: the peer is disconnected.
 * Source:   QEMU docs/interop/vhost-user. Everything is little-endian. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

#define VU_MSG_HEAD    12u /* bytes of request, flags and size in front of the payload */
#define VU_MAX_REGIONS 8u
#define VU_MAX_FDS     8u
#define VU_MAX_CONFIG  256u

enum vu_flag { VU_FLAG_VERSION = 1, VU_FLAG_REPLY = 4, VU_FLAG_NEED_REPLY = 8 };

enum vu_type {
    VU_GET_FEATURES = 1,
    VU_SET_FEATURES = 2,
    VU_SET_OWNER = 3,
    VU_RESET_OWNER = 4,
    VU_SET_MEM_TABLE = 5,
    VU_SET_VRING_NUM = 8,
    VU_SET_VRING_ADDR = 9,
    VU_SET_VRING_BASE = 10,
    VU_GET_VRING_BASE = 11,
    VU_SET_VRING_KICK = 12,
    VU_SET_VRING_CALL = 13,
    VU_SET_VRING_ERR = 14,
    VU_GET_PROTOCOL_FEATURES = 15,
    VU_SET_PROTOCOL_FEATURES = 16,
    VU_GET_QUEUE_NUM = 17,
    VU_SET_VRING_ENABLE = 18,
    VU_SET_BACKEND_REQ_FD = 21,
    VU_GET_CONFIG = 24,
    VU_SET_CONFIG = 25,
    VU_GET_INFLIGHT_FD = 31,
    VU_SET_INFLIGHT_FD = 32,
    VU_TYPE_N
};
#define VU_BACKEND_CONFIG_CHANGE 2u /* a request of the backend, on its own channel */

enum vu_protocol {
    VU_PROTOCOL_MQ = 0,
    VU_PROTOCOL_REPLY_ACK = 3,
    VU_PROTOCOL_BACKEND_REQ = 5,
    VU_PROTOCOL_CONFIG = 9,
    VU_PROTOCOL_INFLIGHT = 12
};
#define VU_F_PROTOCOL_FEATURES 30u    /* bit among the virtio features */
#define VU_NO_FD               0x100u /* of KICK, CALL and ERR: no descriptor comes along */

struct vu_region {
    uint64_t gpa, size, uaddr, off; /* guest address, bytes, frontend's address, in the file */
};
struct vu_vring_addr {
    uint32_t idx, flags;
    uint64_t desc, used, avail, log; /* frontend's addresses */
};
struct vu_inflight_msg { /* 24 bytes: padded, as QEMU insists on */
    uint64_t size, off;
    uint16_t n_queues, queue_size;
    uint32_t pad;
};
struct vu_config_msg {
    uint32_t off, size, flags;
    uint8_t data[VU_MAX_CONFIG];
};
struct vu_msg {
    struct vu_msg_head {
        uint32_t type, flags, size; /* size of the payload */
    } h;
    union vu_payload {
        uint64_t u64;
        struct {
            uint32_t idx, num;
        } vring;
        struct vu_vring_addr addr;
        struct {
            uint32_t n, pad;
            struct vu_region v[VU_MAX_REGIONS];
        } mem;
        struct vu_config_msg config;
        struct vu_inflight_msg inflight;
        uint8_t bytes[sizeof(uint32_t) * 3 + VU_MAX_CONFIG];
    } u;
};

/* The head alone, as soon as it is there: version, direction, a size that fits the type. A
 * type that is unknown passes with any size up to the largest payload (it can be refused
 * politely). */
MUST_CHECK int vu_msg_check_head(const struct vu_msg_head *h, struct err *err);
/* The whole message: number of descriptors, indices, ranges without overflow. Fuzzed. */
MUST_CHECK int vu_msg_check(const struct vu_msg *m, size_t n_fds, unsigned n_queues,
                            struct err *err);
/* Whether the type has a reply of its own, REPLY_ACK or not. */
bool vu_msg_has_reply(uint32_t type);
const char *vu_msg_name(uint32_t type); /* "SET_MEM_TABLE"; "unknown" */
