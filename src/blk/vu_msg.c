#include "blk/vu_msg.h"
#include "blk/vu.h"
#include <errno.h>

enum fd_rule { FDS_NONE, FDS_ONE, FDS_VRING, FDS_REGIONS };

/* 'size' is exact, or for SIZE_VARIES at least this many bytes. */
static const struct {
    const char *name;
    uint32_t size;
    bool is_larger_fine, has_reply;
    enum fd_rule fds;
} types[VU_TYPE_N] = {
    [VU_GET_FEATURES] = {"GET_FEATURES", 0, false, true, FDS_NONE},
    [VU_SET_FEATURES] = {"SET_FEATURES", 8, false, false, FDS_NONE},
    [VU_SET_OWNER] = {"SET_OWNER", 0, false, false, FDS_NONE},
    [VU_RESET_OWNER] = {"RESET_OWNER", 0, false, false, FDS_NONE},
    [VU_SET_MEM_TABLE] = {"SET_MEM_TABLE", 8, true, false, FDS_REGIONS},
    [VU_SET_VRING_NUM] = {"SET_VRING_NUM", 8, false, false, FDS_NONE},
    [VU_SET_VRING_ADDR] = {"SET_VRING_ADDR", 40, false, false, FDS_NONE},
    [VU_SET_VRING_BASE] = {"SET_VRING_BASE", 8, false, false, FDS_NONE},
    [VU_GET_VRING_BASE] = {"GET_VRING_BASE", 8, false, true, FDS_NONE},
    [VU_SET_VRING_KICK] = {"SET_VRING_KICK", 8, false, false, FDS_VRING},
    [VU_SET_VRING_CALL] = {"SET_VRING_CALL", 8, false, false, FDS_VRING},
    [VU_SET_VRING_ERR] = {"SET_VRING_ERR", 8, false, false, FDS_VRING},
    [VU_GET_PROTOCOL_FEATURES] = {"GET_PROTOCOL_FEATURES", 0, false, true, FDS_NONE},
    [VU_SET_PROTOCOL_FEATURES] = {"SET_PROTOCOL_FEATURES", 8, false, false, FDS_NONE},
    [VU_GET_QUEUE_NUM] = {"GET_QUEUE_NUM", 0, false, true, FDS_NONE},
    [VU_SET_VRING_ENABLE] = {"SET_VRING_ENABLE", 8, false, false, FDS_NONE},
    [VU_SET_BACKEND_REQ_FD] = {"SET_BACKEND_REQ_FD", 0, true, false, FDS_ONE},
    [VU_GET_CONFIG] = {"GET_CONFIG", 12, true, true, FDS_NONE},
    [VU_SET_CONFIG] = {"SET_CONFIG", 12, true, false, FDS_NONE},
    [VU_GET_INFLIGHT_FD] = {"GET_INFLIGHT_FD", 24, false, true, FDS_NONE},
    [VU_SET_INFLIGHT_FD] = {"SET_INFLIGHT_FD", 24, false, false, FDS_ONE},
};

static bool is_known(uint32_t type)
{
    return type < VU_TYPE_N && types[type].name;
}

const char *vu_msg_name(uint32_t type)
{
    return is_known(type) ? types[type].name : "unknown";
}

bool vu_msg_has_reply(uint32_t type)
{
    return is_known(type) && types[type].has_reply;
}

static int bad(struct err *err, uint32_t type, const char *why)
{
    return fail(err, -EPROTO, "BadMessage", "%s (%u): %s", vu_msg_name(type), type, why);
}

int vu_msg_check_head(const struct vu_msg_head *h, struct err *err)
{
    const uint32_t known = 3u | VU_FLAG_REPLY | VU_FLAG_NEED_REPLY;
    if ((h->flags & 3u) != VU_FLAG_VERSION || (h->flags & ~known) != 0) {
        return bad(err, h->type, "flags or version are wrong");
    }
    if ((h->flags & VU_FLAG_REPLY) != 0) {
        return bad(err, h->type, "a reply to nothing");
    }
    if (h->size > sizeof(union vu_payload)) {
        return bad(err, h->type, "it is too large");
    }
    if (is_known(h->type)) {
        uint32_t want = types[h->type].size;
        if (types[h->type].is_larger_fine ? h->size < want : h->size != want) {
            return bad(err, h->type, "its size is wrong");
        }
    }
    return 0;
}

static int check_mem(const struct vu_msg *m, size_t n_fds, struct err *err)
{
    uint32_t n = m->u.mem.n;
    if (n == 0 || n > VU_MAX_REGIONS || m->h.size != 8 + n * sizeof(struct vu_region)) {
        return bad(err, m->h.type, "the number of regions is wrong");
    }
    if (n_fds != n) {
        return bad(err, m->h.type, "a region needs exactly one descriptor");
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct vu_region *r = &m->u.mem.v[i];
        uint64_t end = 0;
        if (r->size == 0 || __builtin_add_overflow(r->gpa, r->size, &end) ||
            __builtin_add_overflow(r->uaddr, r->size, &end) ||
            __builtin_add_overflow(r->off, r->size, &end) || end > INT64_MAX) {
            return bad(err, m->h.type, "a region is empty or wraps");
        }
    }
    return 0;
}

static int check_config(const struct vu_msg *m, struct err *err)
{
    const struct vu_config_msg *c = &m->u.config;
    if (c->size > VU_MAX_CONFIG || c->off > VU_MAX_CONFIG ||
        m->h.size != sizeof(uint32_t) * 3 + c->size) {
        return bad(err, m->h.type, "its ranges are wrong");
    }
    return 0;
}

static int check_vring_state(const struct vu_msg *m, unsigned n_queues, struct err *err)
{
    uint32_t num = m->u.vring.num;
    if (m->u.vring.idx >= n_queues) {
        return bad(err, m->h.type, "there is no such ring");
    }
    if (m->h.type == VU_SET_VRING_NUM &&
        (num == 0 || num > VU_QUEUE_SIZE || (num & (num - 1)) != 0)) {
        return bad(err, m->h.type, "the size of a ring is a power of two");
    }
    if (m->h.type == VU_SET_VRING_BASE && num > UINT16_MAX) {
        return bad(err, m->h.type, "an index has 16 bits");
    }
    if (m->h.type == VU_SET_VRING_ENABLE && num > 1) {
        return bad(err, m->h.type, "neither on nor off");
    }
    return 0;
}

static int check_vring_fd(const struct vu_msg *m, size_t n_fds, unsigned n_queues,
                          struct err *err)
{
    uint64_t v = m->u.u64;
    if ((v & ~(uint64_t)(VU_NO_FD | 0xff)) != 0 || (v & 0xff) >= n_queues) {
        return bad(err, m->h.type, "there is no such ring");
    }
    if (n_fds != ((v & VU_NO_FD) != 0 ? 0 : 1)) {
        return bad(err, m->h.type, "the number of descriptors is wrong");
    }
    return 0;
}

static int check_inflight(const struct vu_msg *m, struct err *err)
{
    const struct vu_inflight_msg *in = &m->u.inflight;
    uint64_t end = 0;
    if (in->n_queues == 0 || in->n_queues > VU_MAX_QUEUES || in->queue_size == 0 ||
        in->queue_size > VU_QUEUE_SIZE) {
        return bad(err, m->h.type, "the number or size of rings is wrong");
    }
    if (m->h.type == VU_SET_INFLIGHT_FD &&
        (in->size == 0 || __builtin_add_overflow(in->off, in->size, &end) || end > INT64_MAX)) {
        return bad(err, m->h.type, "the region is empty or wraps");
    }
    return 0;
}

int vu_msg_check(const struct vu_msg *m, size_t n_fds, unsigned n_queues, struct err *err)
{
    int rc = vu_msg_check_head(&m->h, err);
    if (rc < 0 || !is_known(m->h.type)) {
        return rc;
    }
    switch (types[m->h.type].fds) {
    case FDS_REGIONS: return check_mem(m, n_fds, err);
    case FDS_VRING: return check_vring_fd(m, n_fds, n_queues, err);
    case FDS_ONE:
    case FDS_NONE:
        if (n_fds != (types[m->h.type].fds == FDS_ONE ? 1 : 0)) {
            return bad(err, m->h.type, "the number of descriptors is wrong");
        }
    }
    switch (m->h.type) {
    case VU_SET_VRING_NUM:
    case VU_SET_VRING_BASE:
    case VU_GET_VRING_BASE:
    case VU_SET_VRING_ENABLE: return check_vring_state(m, n_queues, err);
    case VU_SET_VRING_ADDR:
        return m->u.addr.idx < n_queues ? 0 : bad(err, m->h.type, "there is no such ring");
    case VU_GET_CONFIG:
    case VU_SET_CONFIG: return check_config(m, err);
    case VU_GET_INFLIGHT_FD:
    case VU_SET_INFLIGHT_FD: return check_inflight(m, err);
    default: return 0;
    }
}
