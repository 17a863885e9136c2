#include "base/test.h"
#include "blk/ctl.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

static union ctl_msg head(enum ctl_op op, size_t size)
{
    return (union ctl_msg){.h = {.magic = CTL_MAGIC,
                                 .version = CTL_VERSION,
                                 .op = (uint16_t)op,
                                 .size = (uint32_t)size}};
}

static void id(char to[BLK_SNAP_ID], const char *from)
{
    memset(to, 0, BLK_SNAP_ID);
    memcpy(to, from, strlen(from));
}

/* A message of each kind as it should be. */
static union ctl_msg good(enum ctl_op op, size_t *ret_n_fds)
{
    union ctl_msg m = head(op, sizeof(struct ctl_head));
    *ret_n_fds = 0;
    switch (op) {
    case CTL_OPEN:
        m.h.size = sizeof(struct ctl_open);
        id(m.open.id, "vol-0123456789abcdef0");
        m.open.size = 1 << 30;
        m.open.flags = CTL_OPEN_MAP | CTL_OPEN_RUN | CTL_OPEN_ASIDE | CTL_OPEN_SOURCE;
        m.open.n_queues = 2;
        *ret_n_fds = 4;
        break;
    case CTL_SERVE_VU:
    case CTL_SERVE_NBD:
        m.h.size = sizeof(struct ctl_serve);
        m.serve.n_queues = 2;
        memcpy(m.serve.serial, "vol0123456789abcdef0", 20);
        *ret_n_fds = 1;
        break;
    case CTL_LIMITS: m.h.size = sizeof(struct ctl_limits); break;
    case CTL_GROW: m.h.arg = UINT64_C(2) << 30; break;
    case CTL_SNAP:
        m.h.size = sizeof(struct ctl_snap);
        m.snap.n = CTL_MAX_DISKS;
        for (uint32_t i = 0; i < CTL_MAX_DISKS; i++) {
            m.snap.v[i].disk = i;
            id(m.snap.v[i].snap, "snap-0123456789abcdef0");
        }
        break;
    case CTL_SNAP_READ:
    case CTL_SNAP_END:
    case CTL_SNAP_ABORT:
    case CTL_STORED:
    case CTL_UPLOAD:
    case CTL_SNAP_DONE: id(m.h.snap, "snap-0123456789abcdef0"); break;
    case CTL_WELCOME:
        m.h.size = sizeof(struct ctl_welcome);
        m.welcome.pid = 4711;
        *ret_n_fds = 1;
        break;
    case CTL_RESULT:
        m.h.size = sizeof(struct ctl_result);
        m.h.rc = -EIO;
        memcpy(m.result.text, "no", 3);
        break;
    case CTL_DISK_STATE:
        m.h.size = sizeof(struct ctl_state);
        id(m.state.id, "vol-0123456789abcdef0");
        m.state.size = 512;
        break;
    default: break;
    }
    return m;
}

static const enum ctl_op all_ops[] = {
    CTL_OPEN,    CTL_CLOSE,  CTL_SERVE_VU,  CTL_SERVE_NBD, CTL_UNSERVE,    CTL_LIMITS,
    CTL_GROW,    CTL_SNAP,   CTL_SNAP_READ, CTL_SNAP_END,  CTL_FETCHED,    CTL_STORED,
    CTL_FILL,    CTL_STATE,  CTL_GIVE,      CTL_QUIT,      CTL_SNAP_ABORT, CTL_ABSENT,
    CTL_WELCOME, CTL_RESULT, CTL_FETCH,     CTL_UPLOAD,    CTL_SNAP_DONE,  CTL_DISK_STATE};

static void test_what_is_right_passes_one_way_only(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(all_ops); i++) {
        size_t n_fds = 0;
        union ctl_msg m = good(all_ops[i], &n_fds);
        bool is_from_data = all_ops[i] >= CTL_WELCOME;
        print_message("op %d\n", all_ops[i]);
        assert_int_equal(ctl_check(&m, m.h.size, n_fds, is_from_data), 0);
        assert_int_equal(ctl_check(&m, m.h.size, n_fds, !is_from_data), -EPROTO);
        /* A byte less or more, a descriptor less or more. */
        assert_int_equal(ctl_check(&m, m.h.size - 1, n_fds, is_from_data), -EPROTO);
        if (all_ops[i] != CTL_RESULT) {
            assert_int_equal(ctl_check(&m, m.h.size, n_fds + 1, is_from_data), -EPROTO);
        }
        assert_int_equal(ctl_check(&m, m.h.size, n_fds - 1, is_from_data), -EPROTO);
        union ctl_msg longer = m;
        longer.h.size++;
        assert_int_equal(ctl_check(&longer, longer.h.size, n_fds, is_from_data), -EPROTO);
        union ctl_msg other = m;
        other.h.version++;
        assert_int_equal(ctl_check(&other, other.h.size, n_fds, is_from_data), -EPROTO);
        other = m;
        other.h.magic ^= 1;
        assert_int_equal(ctl_check(&other, other.h.size, n_fds, is_from_data), -EPROTO);
    }
    static const unsigned unknown[] = {0, 19, 63, 70, 65535};
    for (size_t i = 0; i < ARRAY_LEN(unknown); i++) {
        union ctl_msg m = head((enum ctl_op)unknown[i], sizeof(struct ctl_head));
        assert_int_equal(ctl_check(&m, m.h.size, 0, false), -EPROTO);
        assert_int_equal(ctl_check(&m, m.h.size, 0, true), -EPROTO);
    }
}

enum spoil {
    DISK,
    SLOT,
    BLOCK,
    RC,
    SNAP_EMPTY,
    SNAP_ENDLESS,
    SNAP_SLASH,
    ARG,
    ID_ENDLESS,
    ID_DOTS,
    SIZE_0,
    SIZE_ODD,
    SIZE_HUGE,
    FLAGS,
    BASE_ALONE,
    RUN_WITHOUT_MAP,
    QUEUES_0,
    QUEUES,
    SERIAL,
    SERIAL_LONG,
    POLL,
    N_0,
    N_LARGE,
    TWICE,
    SECOND_DISK,
    RC_POSITIVE,
    TEXT_ENDLESS,
    TEXT_CONTROL,
    PID,
    N_DISKS,
    FROZEN,
    LEFT,
    TRUTH,
    PARENT,
};

static void spoil(union ctl_msg *m, enum spoil what)
{
    switch (what) {
    case DISK: m->h.disk = CTL_MAX_DISKS; break;
    case SLOT: m->h.slot = CTL_N_SLOTS; break;
    case BLOCK: m->h.block = CTL_MAX_SIZE / BLK_BLOCK; break;
    case RC: m->h.rc = -ENOENT; break;
    case SNAP_EMPTY: m->h.snap[0] = 0; break;
    case SNAP_ENDLESS: memset(m->h.snap, 'a', sizeof(m->h.snap)); break;
    case SNAP_SLASH: m->h.snap[3] = '/'; break;
    case ARG: m->h.arg = 2; break;
    case ID_ENDLESS: memset(m->open.id, 'a', sizeof(m->open.id)); break;
    case ID_DOTS: m->open.id[0] = '.'; break;
    case SIZE_0: m->open.size = 0; break;
    case SIZE_ODD: m->open.size = 513; break;
    case SIZE_HUGE: m->open.size = CTL_MAX_SIZE + 512; break;
    case FLAGS: m->open.flags |= 1024; break;
    case BASE_ALONE:
        m->open.flags = CTL_OPEN_MAP | CTL_OPEN_RUN | CTL_OPEN_BASE;
        break; /* as many descriptors as before */
    case RUN_WITHOUT_MAP: m->open.flags = CTL_OPEN_RUN | CTL_OPEN_ASIDE | CTL_OPEN_BASE; break;
    case QUEUES_0: m->open.n_queues = 0; break;
    case QUEUES: m->open.n_queues = CTL_MAX_QUEUES + 1; break;
    case SERIAL: m->serve.serial[4] = '\n'; break;
    case SERIAL_LONG: m->serve.serial[20] = 'x'; break;
    case POLL: m->serve.poll_ns = CTL_MAX_POLL_NS + 1; break;
    case N_0: m->snap.n = 0; break;
    case N_LARGE: m->snap.n = CTL_MAX_DISKS + 1; break;
    case TWICE: m->snap.v[7].disk = 3; break;
    case SECOND_DISK: m->snap.v[1].disk = CTL_MAX_DISKS; break;
    case RC_POSITIVE: m->h.rc = 1; break;
    case TEXT_ENDLESS: memset(m->result.text, 'a', sizeof(m->result.text)); break;
    case TEXT_CONTROL: m->result.text[0] = 27; break;
    case PID: m->welcome.pid = 0; break;
    case N_DISKS: m->welcome.n_disks = CTL_MAX_DISKS + 1; break;
    case FROZEN: m->state.frozen[2].snap[0] = '/'; break;
    case LEFT: m->state.frozen[3].n_left = 1; break;
    case TRUTH: m->state.is_faulted = 2; break;
    case PARENT: memset(m->state.frozen[0].parent, 'a', BLK_SNAP_ID); break;
    }
}

static void test_what_is_wrong_is_refused(void **state)
{
    static const struct {
        enum ctl_op op;
        enum spoil what;
    } rows[] = {{CTL_OPEN, DISK},
                {CTL_OPEN, ID_ENDLESS},
                {CTL_OPEN, ID_DOTS},
                {CTL_OPEN, SIZE_0},
                {CTL_OPEN, SIZE_ODD},
                {CTL_OPEN, SIZE_HUGE},
                {CTL_OPEN, FLAGS},
                {CTL_OPEN, BASE_ALONE},
                {CTL_OPEN, RUN_WITHOUT_MAP},
                {CTL_OPEN, QUEUES_0},
                {CTL_OPEN, QUEUES},
                {CTL_CLOSE, DISK},
                {CTL_CLOSE, ARG},
                {CTL_SERVE_VU, DISK},
                {CTL_SERVE_VU, SERIAL},
                {CTL_SERVE_VU, SERIAL_LONG},
                {CTL_SERVE_VU, POLL},
                {CTL_SERVE_NBD, ARG},
                {CTL_UNSERVE, ARG},
                {CTL_LIMITS, DISK},
                {CTL_GROW, ARG},
                {CTL_SNAP, N_0},
                {CTL_SNAP, N_LARGE},
                {CTL_SNAP, TWICE},
                {CTL_SNAP, SECOND_DISK},
                {CTL_SNAP, ARG},
                {CTL_SNAP_READ, SNAP_EMPTY},
                {CTL_SNAP_END, SNAP_ENDLESS},
                {CTL_SNAP_END, SNAP_SLASH},
                {CTL_FETCHED, DISK},
                {CTL_FETCHED, SLOT},
                {CTL_FETCHED, BLOCK},
                {CTL_FETCHED, RC},
                {CTL_STORED, RC},
                {CTL_STORED, RC_POSITIVE},
                {CTL_STORED, SLOT},
                {CTL_STORED, SNAP_EMPTY},
                {CTL_FILL, DISK},
                {CTL_GIVE, DISK},
                {CTL_FETCH, DISK},
                {CTL_FETCH, SLOT},
                {CTL_FETCH, BLOCK},
                {CTL_FETCH, ARG},
                {CTL_UPLOAD, SLOT},
                {CTL_UPLOAD, BLOCK},
                {CTL_UPLOAD, SNAP_SLASH},
                {CTL_SNAP_DONE, SNAP_EMPTY},
                {CTL_RESULT, RC_POSITIVE},
                {CTL_RESULT, TEXT_ENDLESS},
                {CTL_RESULT, TEXT_CONTROL},
                {CTL_WELCOME, PID},
                {CTL_WELCOME, N_DISKS},
                {CTL_DISK_STATE, DISK},
                {CTL_DISK_STATE, FROZEN},
                {CTL_DISK_STATE, LEFT},
                {CTL_DISK_STATE, TRUTH},
                {CTL_DISK_STATE, PARENT},
                {CTL_SNAP_ABORT, SNAP_EMPTY}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        size_t n_fds = 0;
        union ctl_msg m = good(rows[i].op, &n_fds);
        spoil(&m, rows[i].what);
        int rc = ctl_check(&m, m.h.size, n_fds, rows[i].op >= CTL_WELCOME);
        if (rc != -EPROTO) {
            fail_msg("row %zu: op %d, spoilt %d: %d", i, rows[i].op, rows[i].what, rc);
        }
    }
}

static void pair(int ret[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret), 0);
}

static void test_messages_and_descriptors_travel(void **state)
{
    int s[2], fds[CTL_MAX_FDS];
    pair(s);
    for (size_t i = 0; i < ARRAY_LEN(all_ops); i++) {
        size_t n_fds = 0, n_got = 99;
        union ctl_msg m = good(all_ops[i], &n_fds), got;
        int send[CTL_MAX_FDS];
        for (size_t k = 0; k < n_fds; k++) {
            send[k] = memfd_create("x", MFD_CLOEXEC);
            assert_int_equal(ftruncate(send[k], (off_t)(100 + k)), 0);
        }
        m.h.magic = m.h.version = 0; /* set on the way */
        m.h.size = 0;
        m.h.seq = 77;
        assert_int_equal(ctl_send(s[0], &m, send, n_fds), 0);
        assert_int_equal(ctl_recv(s[1], all_ops[i] >= CTL_WELCOME, &got, fds, &n_got), 0);
        assert_int_equal(n_got, n_fds);
        assert_int_equal(got.h.seq, 77);
        assert_memory_equal(&got, &m, m.h.size);
        for (size_t k = 0; k < n_fds; k++) {
            struct stat st;
            assert_int_equal(fstat(fds[k], &st), 0);
            assert_int_equal(st.st_size, 100 + k); /* in their order */
            assert_int_equal(fcntl(fds[k], F_GETFD), FD_CLOEXEC);
            close(fds[k]);
            close(send[k]);
        }
    }
    union ctl_msg got;
    size_t n = 0;
    assert_int_equal(ctl_recv(s[1], true, &got, fds, &n), -EAGAIN);
    close(s[0]);
    assert_int_equal(ctl_recv(s[1], true, &got, fds, &n), -EPIPE);
    size_t n_fds = 0;
    union ctl_msg m = good(CTL_FETCH, &n_fds);
    assert_int_equal(ctl_send(s[1], &m, NULL, 0), -EPIPE);
    close(s[1]);
}

static int n_open(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++) {
        n += fcntl(fd, F_GETFD) >= 0;
    }
    return n;
}

static void raw_send(int sock, const void *p, size_t n, size_t n_fds)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(32 * sizeof(int))];
    } c = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)p, .iov_len = n};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
    if (n_fds > 0) {
        h.msg_control = c.bytes;
        h.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        struct cmsghdr *cm = &c.align; /* the first */
        cm->cmsg_level = SOL_SOCKET;
        cm->cmsg_type = SCM_RIGHTS;
        cm->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        for (size_t i = 0; i < n_fds; i++) {
            int fd = 1;
            memcpy(CMSG_DATA(cm) + i * sizeof(int), &fd, sizeof(fd));
        }
    }
    assert_int_equal(sendmsg(sock, &h, 0), n);
}

/* A message that is refused leaves no descriptor behind: they would be gone after a thousand. */
static void test_descriptors_of_a_refused_message_are_closed(void **state)
{
    int s[2], fds[CTL_MAX_FDS];
    pair(s);
    int before = n_open();
    static const struct {
        enum ctl_op op;
        int d_size;
        size_t n_fds;
    } rows[] = {{CTL_OPEN, 0, 3},  {CTL_OPEN, 0, 8},   {CTL_OPEN, 0, 12},  {CTL_OPEN, -1, 4},
                {CTL_STATE, 0, 1}, {CTL_STATE, 0, 30}, {CTL_OPEN, 4000, 4}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        size_t n_fds = 0;
        struct {
            union ctl_msg m;
            char more[8000];
        } big = {.m = good(rows[i].op, &n_fds)};
        raw_send(s[0], &big, (size_t)((int)big.m.h.size + rows[i].d_size), rows[i].n_fds);
        union ctl_msg got;
        size_t n = 0;
        assert_int_equal(ctl_recv(s[1], false, &got, fds, &n), -EPROTO);
        assert_int_equal(n, 0);
        assert_int_equal(n_open(), before);
    }
    close(s[0]);
    close(s[1]);
}

static void test_a_full_socket_says_again(void **state)
{
    int s[2], fds[CTL_MAX_FDS], n = 0;
    pair(s);
    size_t n_fds = 0;
    union ctl_msg m = good(CTL_DISK_STATE, &n_fds), got;
    int rc = 0;
    while ((rc = ctl_send(s[0], &m, NULL, 0)) == 0) {
        n++;
        assert_in_range(n, 1, 100000);
    }
    assert_int_equal(rc, -EAGAIN);
    for (int i = 0; i < n; i++) {
        assert_int_equal(ctl_recv(s[1], true, &got, fds, &n_fds), 0);
    }
    assert_int_equal(ctl_recv(s[1], true, &got, fds, &n_fds), -EAGAIN);
    assert_int_equal(ctl_send(s[0], &m, NULL, 0), 0);
    close(s[0]);
    close(s[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_right_passes_one_way_only),
        cmocka_unit_test(test_what_is_wrong_is_refused),
        cmocka_unit_test(test_messages_and_descriptors_travel),
        cmocka_unit_test(test_descriptors_of_a_refused_message_are_closed),
        cmocka_unit_test(test_a_full_socket_says_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
