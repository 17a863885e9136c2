/* Messages of a frontend: what vu_msg_check() lets through can be used without another look.
 * Input: the number of descriptors, the number of rings, then a message. */
#include "blk/vu.h"
#include "blk/vu_msg.h"
#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_regions(const struct vu_msg *m, size_t n_fds)
{
    assert(m->u.mem.n == n_fds && n_fds > 0 && n_fds <= VU_MAX_REGIONS);
    for (uint32_t i = 0; i < m->u.mem.n; i++) {
        const struct vu_region *r = &m->u.mem.v[i];
        assert(r->size > 0 && r->gpa + r->size > r->gpa && r->uaddr + r->size > r->uaddr &&
               r->off + r->size > r->off);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct vu_msg m = {0};
    if (size < 2 + VU_MSG_HEAD) {
        return 0;
    }
    size_t n_fds = data[0] % (VU_MAX_FDS + 1), n = MIN(size - 2 - VU_MSG_HEAD, sizeof(m.u));
    unsigned n_queues = 1 + data[1] % VU_MAX_QUEUES;
    memcpy(&m.h, data + 2, VU_MSG_HEAD);
    memcpy(&m.u, data + 2 + VU_MSG_HEAD, n);
    struct err err = ERR_INIT;
    if (vu_msg_check(&m, n_fds, n_queues, &err) < 0) {
        assert(err.code == -71 && err.msg[0] != '\0'); /* EPROTO, with a reason */
        return 0;
    }
    assert(m.h.size <= sizeof(m.u) && (m.h.flags & 3) == 1 && (m.h.flags & VU_FLAG_REPLY) == 0);
    assert(vu_msg_check_head(&m.h, NULL) == 0);
    switch (m.h.type) {
    case VU_SET_MEM_TABLE: check_regions(&m, n_fds); break;
    case VU_SET_VRING_KICK:
    case VU_SET_VRING_CALL:
    case VU_SET_VRING_ERR:
        assert((m.u.u64 & 0xff) < n_queues && n_fds == ((m.u.u64 & VU_NO_FD) ? 0 : 1));
        break;
    case VU_SET_VRING_NUM:
        assert(m.u.vring.num > 0 && m.u.vring.num <= VU_QUEUE_SIZE && m.u.vring.idx < n_queues);
        break;
    case VU_SET_VRING_BASE:
    case VU_GET_VRING_BASE:
    case VU_SET_VRING_ENABLE: assert(m.u.vring.idx < n_queues && n_fds == 0); break;
    case VU_SET_VRING_ADDR: assert(m.u.addr.idx < n_queues); break;
    case VU_GET_CONFIG:
    case VU_SET_CONFIG:
        assert(m.u.config.size <= VU_MAX_CONFIG && m.u.config.off <= VU_MAX_CONFIG);
        break;
    case VU_SET_INFLIGHT_FD: assert(n_fds == 1 && m.u.inflight.size > 0); break;
    default: assert(m.h.type != VU_SET_BACKEND_REQ_FD || n_fds == 1); break;
    }
    return 0;
}
