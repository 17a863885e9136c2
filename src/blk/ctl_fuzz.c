#include "blk/ctl.h"
#include "blk/vu.h"
#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What whoever gets a message relies on, said a second time. */
static void check_promises(const union ctl_msg *m, size_t n, size_t n_fds, bool is_from_data)
{
    assert(n >= sizeof(m->h) && n <= sizeof(*m) && m->h.size == n);
    assert((m->h.op >= CTL_WELCOME) == is_from_data);
    switch ((enum ctl_op)m->h.op) {
    case CTL_OPEN:
        assert(m->h.disk < CTL_MAX_DISKS && strlen(m->open.id) < sizeof(m->open.id));
        assert(m->open.size > 0 && m->open.size <= CTL_MAX_SIZE);
        assert(n_fds == 1 + (size_t)__builtin_popcount(m->open.flags & 31));
        break;
    case CTL_SERVE_VU:
        assert(n_fds == 1 && m->h.disk < CTL_MAX_DISKS);
        assert(strnlen(m->serve.serial, sizeof(m->serve.serial)) <= VU_SERIAL);
        break;
    case CTL_SNAP:
        assert(m->snap.n >= 1 && m->snap.n <= CTL_MAX_DISKS);
        for (uint32_t i = 0; i < m->snap.n; i++) {
            assert(m->snap.v[i].disk < CTL_MAX_DISKS && m->snap.v[i].snap[0] != 0);
        }
        break;
    case CTL_FETCHED:
    case CTL_STORED:
    case CTL_FETCH:
    case CTL_UPLOAD:
        assert(m->h.disk < CTL_MAX_DISKS && m->h.slot < CTL_N_SLOTS && n_fds == 0);
        assert(m->h.block < CTL_MAX_SIZE / BLK_BLOCK);
        break;
    case CTL_RESULT:
        assert(m->h.rc <= 0 && strlen(m->result.text) < CTL_TEXT && n_fds <= 2);
        break;
    case CTL_DISK_STATE:
        assert(m->h.disk < CTL_MAX_DISKS && strlen(m->state.id) < sizeof(m->state.id));
        break;
    default: break;
    }
}

/* First byte: number of descriptors and direction; the rest is the message. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    union ctl_msg m = {.h = {.magic = 0}};
    if (size < 1 || size - 1 > sizeof(m)) {
        return 0;
    }
    size_t n = size - 1, n_fds = data[0] & 15;
    bool is_from_data = (data[0] & 16) != 0;
    if (n > 0) {
        memcpy(&m, data + 1, n);
    }
    /* Half of the inputs get a head that is right, to reach what comes after it. */
    if ((data[0] & 32) != 0 && n >= sizeof(m.h)) {
        m.h.magic = CTL_MAGIC;
        m.h.version = CTL_VERSION;
        m.h.size = (uint32_t)n;
    }
    if (ctl_check(&m, n, n_fds, is_from_data) == 0) {
        check_promises(&m, n, n_fds, is_from_data);
    }
    return 0;
}
