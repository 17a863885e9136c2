#include "blk/vu_config.h"
#include "blk/vu_int.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_ring.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define ALL_RINGS   (~0u)
#define HAS(set, b) (((set) >> (b)&1) != 0)

uint64_t vu_size(const struct vu *v)
{
    return v->o.disk ? disk_size(v->o.disk) : v->cut_size;
}

unsigned vu_apply_stops(const struct vu *v, const struct vu_msg *m)
{
    switch (m->h.type) {
    case VU_SET_FEATURES:
    case VU_RESET_OWNER:
    case VU_SET_MEM_TABLE:
    case VU_SET_INFLIGHT_FD: return ALL_RINGS;
    case VU_SET_VRING_KICK: return 1u << (m->u.u64 & 0xff);
    case VU_SET_VRING_ADDR: return 1u << m->u.addr.idx;
    case VU_SET_VRING_NUM:
    case VU_SET_VRING_BASE:
    case VU_GET_VRING_BASE: return 1u << m->u.vring.idx;
    case VU_SET_VRING_ENABLE: return m->u.vring.num == 0 ? 1u << m->u.vring.idx : 0;
    default: return 0;
    }
}

/* Only what lives in no file system can be an eventfd (or its kin): a pipe or a file would
 * block or spin. The flag keeps a full counter from blocking us. */
static int check_eventfd(int fd, struct err *err)
{
    struct stat st;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fstat(fd, &st) != 0 || (st.st_mode & S_IFMT) != 0) {
        return fail(err, -EPROTO, "BadMessage", "the descriptor is no eventfd");
    }
    if ((flags & O_NONBLOCK) == 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
        return fail(err, -EPROTO, "BadMessage", "the eventfd cannot be used: %m");
    }
    return 0;
}

static void unmap_inflight(struct vu *v)
{
    if (v->inflight.map) {
        (void)munmap(v->inflight.map, v->inflight.map_len);
    }
    memset(&v->inflight, 0, sizeof(v->inflight));
}

static void stop_vring(struct vu_vring *r)
{
    if (r->kick_fd >= 0) {
        close(steal_fd(&r->kick_fd));
    }
}

void vu_apply_reset(struct vu *v)
{
    for (unsigned i = 0; i < v->o.n_queues; i++) {
        struct vu_vring *r = &v->vrings[i];
        stop_vring(r);
        /* The old eventfds go with the connection: nobody is told any more. */
        (void)(vu_queue_set_fd(r->q, VU_QUEUE_CALL, -1) < 0);
        (void)(vu_queue_set_fd(r->q, VU_QUEUE_ERR, -1) < 0);
        *r = (struct vu_vring){.q = r->q, .kick_fd = -1};
    }
    unmap_inflight(v);
    vu_mem_clear(&v->mem);
    if (v->backend_fd >= 0) {
        close(steal_fd(&v->backend_fd));
    }
    v->features = v->protocol = 0;
}

static int set_mem(struct vu *v, struct err *err)
{
    vu_mem_clear(&v->mem);
    return vu_mem_map(&v->mem, v->msg.u.mem.v, v->msg.u.mem.n, v->fds, err);
}

static int set_kick(struct vu *v, struct vu_vring *r, struct err *err)
{
    if (v->n_fds == 0) {
        return fail(err, -EPROTO, "BadMessage", "a ring without kicks is not supported");
    }
    int rc = check_eventfd(v->fds[0], err);
    if (rc < 0) {
        return rc;
    }
    stop_vring(r);
    r->kick_fd = steal_fd(&v->fds[0]);
    if (!HAS(v->features, VU_F_PROTOCOL_FEATURES)) {
        r->is_enabled = true; /* such a frontend does not say so */
    }
    return 0;
}

static int set_queue_fd(struct vu *v, struct vu_vring *r, enum vu_queue_fd which,
                        struct err *err)
{
    int rc = v->n_fds > 0 ? check_eventfd(v->fds[0], err) : 0;
    if (rc == 0) {
        rc = vu_queue_set_fd(r->q, which, v->n_fds > 0 ? v->fds[0] : -1);
    }
    return rc < 0 ? fail(err, rc, "BadMessage", "the eventfd cannot be used") : 0;
}

static int get_inflight(struct vu *v, struct vu_msg *reply, int *ret_fd, struct err *err)
{
    const struct vu_inflight_msg *m = &v->msg.u.inflight;
    uint64_t size = vu_inflight_size(m->n_queues, m->queue_size);
    AUTO_FD fd = memfd_create("spx-vu-inflight", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)size) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return fail(err, -errno, "NoMemory", "no memory for the log of requests: %m");
    }
    reply->h.size = sizeof(reply->u.inflight);
    reply->u.inflight = (struct vu_inflight_msg){
        .size = size, .n_queues = m->n_queues, .queue_size = m->queue_size};
    *ret_fd = steal_fd(&fd);
    return 0;
}

static int set_inflight(struct vu *v, struct err *err)
{
    const struct vu_inflight_msg *m = &v->msg.u.inflight;
    unmap_inflight(v);
    if (m->size < vu_inflight_size(m->n_queues, m->queue_size) || (m->off & 7) != 0) {
        return fail(err, -EPROTO, "BadMessage", "the log of requests is too small");
    }
    int rc = vu_mem_map_sealed(v->fds[0], m->off, m->size, &v->inflight.map,
                               &v->inflight.map_len, &v->inflight.p, err);
    if (rc == 0) {
        v->inflight.m = *m;
    }
    return rc;
}

static void get_config(struct vu *v, struct vu_msg *reply)
{
    const struct vu_config_msg *m = &v->msg.u.config;
    uint8_t all[VU_MAX_CONFIG * 2] = {0}; /* what lies behind the end reads as zeros */
    uint64_t size = vu_size(v);
    vu_config_fill(size, v->o.n_queues, all);
    reply->h.size = v->msg.h.size;
    reply->u.config = (struct vu_config_msg){m->off, m->size, m->flags, {0}};
    memcpy(reply->u.config.data, all + m->off, m->size);
    if (m->off == 0 && m->size >= sizeof(uint64_t)) {
        v->told_size = size;
    }
}

static int set_features(struct vu *v, uint64_t f, struct err *err)
{
    if ((f & ~vu_config_features(v->is_read_only)) != 0) {
        return fail(err, -EPROTO, "BadMessage", "features that were not offered: %#llx",
                    (unsigned long long)f);
    }
    v->features = f;
    return 0;
}

static int apply_vring(struct vu *v, struct vu_msg *reply, struct err *err)
{
    const struct vu_msg *m = &v->msg;
    struct vu_vring *r =
        &v->vrings[m->h.type == VU_SET_VRING_ADDR ? m->u.addr.idx
                   : m->h.type == VU_SET_VRING_KICK || m->h.type == VU_SET_VRING_CALL ||
                           m->h.type == VU_SET_VRING_ERR
                       ? m->u.u64 & 0xff
                       : m->u.vring.idx];
    switch (m->h.type) {
    case VU_SET_VRING_NUM: r->num = (uint16_t)m->u.vring.num; return 0;
    case VU_SET_VRING_BASE: r->base = (uint16_t)m->u.vring.num; return 0;
    case VU_SET_VRING_ENABLE: r->is_enabled = m->u.vring.num == 1; return 0;
    case VU_SET_VRING_ADDR:
        r->addr = m->u.addr;
        r->has_addr = true;
        return 0;
    case VU_SET_VRING_KICK: return set_kick(v, r, err);
    case VU_SET_VRING_CALL: return set_queue_fd(v, r, VU_QUEUE_CALL, err);
    case VU_SET_VRING_ERR: return set_queue_fd(v, r, VU_QUEUE_ERR, err);
    default: /* GET_VRING_BASE: the ring is stopped and everything given back */
        stop_vring(r);
        reply->h.size = sizeof(reply->u.vring);
        reply->u.vring.idx = m->u.vring.idx;
        reply->u.vring.num = r->base;
        return 0;
    }
}

int vu_apply(struct vu *v, struct vu_msg *reply, int *ret_fd, struct err *err)
{
    const struct vu_msg *m = &v->msg;
    switch (m->h.type) {
    case VU_GET_FEATURES:
        reply->u.u64 = vu_config_features(v->is_read_only);
        reply->h.size = sizeof(uint64_t);
        return 0;
    case VU_GET_PROTOCOL_FEATURES:
        reply->u.u64 = vu_config_protocol();
        reply->h.size = sizeof(uint64_t);
        return 0;
    case VU_GET_QUEUE_NUM:
        reply->u.u64 = v->o.n_queues;
        reply->h.size = sizeof(uint64_t);
        return 0;
    case VU_SET_FEATURES: return set_features(v, m->u.u64, err);
    case VU_SET_PROTOCOL_FEATURES:
        if ((m->u.u64 & ~vu_config_protocol()) != 0) {
            return fail(err, -EPROTO, "BadMessage", "protocol features that were not offered");
        }
        v->protocol = m->u.u64;
        return 0;
    case VU_SET_OWNER: return 0;
    case VU_RESET_OWNER:
        for (unsigned i = 0; i < v->o.n_queues; i++) {
            stop_vring(&v->vrings[i]);
            v->vrings[i].is_enabled = false;
        }
        return 0;
    case VU_SET_MEM_TABLE: return set_mem(v, err);
    case VU_SET_BACKEND_REQ_FD:
        if (v->backend_fd >= 0) {
            close(v->backend_fd);
        }
        v->backend_fd = steal_fd(&v->fds[0]);
        return 0;
    case VU_GET_CONFIG: get_config(v, reply); return 0;
    case VU_SET_CONFIG: return fail(err, -EOPNOTSUPP, "NotSupported", "nothing can be set");
    case VU_GET_INFLIGHT_FD: return get_inflight(v, reply, ret_fd, err);
    case VU_SET_INFLIGHT_FD: return set_inflight(v, err);
    case VU_SET_VRING_NUM:
    case VU_SET_VRING_ADDR:
    case VU_SET_VRING_BASE:
    case VU_GET_VRING_BASE:
    case VU_SET_VRING_KICK:
    case VU_SET_VRING_CALL:
    case VU_SET_VRING_ERR:
    case VU_SET_VRING_ENABLE: return apply_vring(v, reply, err);
    default: return fail(err, -EPROTO, "BadMessage", "message %u is not known", m->h.type);
    }
}

int vu_apply_start(struct vu *v, struct err *err)
{
    for (unsigned i = 0; i < v->o.n_queues; i++) {
        struct vu_vring *r = &v->vrings[i];
        if (vu_queue_state(r->q) != VU_QUEUE_STOPPED || r->kick_fd < 0 || !r->is_enabled ||
            !r->has_addr || r->num == 0 || v->mem.n == 0) {
            continue;
        }
        struct vu_queue_start s = {
            .ring = {.mem = &v->mem,
                     .num = r->num,
                     .has_event_idx = HAS(v->features, VIRTIO_RING_F_EVENT_IDX),
                     .has_indirect = HAS(v->features, VIRTIO_RING_F_INDIRECT_DESC),
                     .desc = r->addr.desc,
                     .avail = r->addr.avail,
                     .used = r->addr.used},
            .base = r->base,
            .kick_fd = r->kick_fd,
        };
        if (v->inflight.map && i < v->inflight.m.n_queues) {
            uint16_t n = v->inflight.m.queue_size;
            s.inflight.num = n;
            s.inflight.r = (void *)(v->inflight.p + i * vu_inflight_part(n));
        }
        int rc = vu_queue_start(r->q, &s, err);
        if (rc < 0) {
            return rc;
        }
        r->was_started = true;
    }
    return 0;
}
