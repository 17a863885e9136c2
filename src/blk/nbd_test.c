#include "blk/nbd_test_client.h"
#include "blk/nbd_world.h"
#include <sys/stat.h>
#include <sys/wait.h>

#define SIZE (UINT64_C(16) << 20)

static struct nbd_world w;

static void open_world(const struct nbd_world_opts *o)
{
    nbd_world_init(&w, o);
}

static void fill(uint8_t *p, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1103515245u + 12345u;
        p[i] = (uint8_t)((seed >> 16) | 1);
    }
}

/* ---- requests ---- */

static void test_what_is_written_is_read(void **state)
{
    static uint8_t out[64 << 10], in[64 << 10];
    open_world(&(struct nbd_world_opts){.size = SIZE});
    int fd = nbd_client_go(w.path, false);
    fill(out, sizeof(out), 1);
    nbd_client_ask(fd, NBD_CMD_WRITE, 0, 1, 4096, sizeof(out), out);
    assert_int_equal(nbd_client_simple(fd, 1), 0);
    nbd_client_ask(fd, NBD_CMD_WRITE, NBD_FUA, 2, 512, 512, out + 512); /* a part of a page */
    assert_int_equal(nbd_client_simple(fd, 2), 0);
    nbd_client_ask(fd, NBD_CMD_READ, 0, 3, 4096, sizeof(in), NULL);
    assert_int_equal(nbd_client_simple(fd, 3), 0);
    nbd_client_get(fd, in, sizeof(in));
    assert_memory_equal(in, out, sizeof(in));
    nbd_client_ask(fd, NBD_CMD_READ, 0, 4, 0, 1536, NULL);
    assert_int_equal(nbd_client_simple(fd, 4), 0);
    nbd_client_get(fd, in, 1536);
    static const uint8_t zeros[512];
    assert_memory_equal(in, zeros, 512);
    assert_memory_equal(in + 512, out + 512, 512);
    assert_memory_equal(in + 1024, zeros, 512);
    /* Zeros, then a hole; both read as zeros, and FLUSH is answered. */
    nbd_client_ask(fd, NBD_CMD_WRITE_ZEROES, NBD_NO_HOLE, 5, 4096, 8192, NULL);
    nbd_client_ask(fd, NBD_CMD_TRIM, NBD_FUA, 6, 16384, 8192, NULL);
    assert_int_equal(nbd_client_num(fd, 4) == NBD_SIMPLE_MAGIC && nbd_client_num(fd, 4) == 0,
                     1);
    (void)nbd_client_num(fd, 8);
    assert_int_equal(nbd_client_num(fd, 4) == NBD_SIMPLE_MAGIC && nbd_client_num(fd, 4) == 0,
                     1);
    (void)nbd_client_num(fd, 8);
    nbd_client_ask(fd, NBD_CMD_FLUSH, 0, 7, 0, 0, NULL);
    assert_int_equal(nbd_client_simple(fd, 7), 0);
    nbd_client_ask(fd, NBD_CMD_READ, 0, 8, 4096, 24576, NULL);
    assert_int_equal(nbd_client_simple(fd, 8), 0);
    nbd_client_get(fd, in, 24576);
    for (unsigned i = 0; i < 24576; i++) {
        bool is_zero = i < 8192 || (i >= 12288 && i < 20480);
        assert_int_equal(in[i], is_zero ? 0 : out[i]);
    }
    close(fd);
    nbd_world_done(&w);
}

static void test_bad_requests_get_their_errors(void **state)
{
    static uint8_t payload[8192];
    static const struct {
        const char *name;
        bool is_read_only;
        unsigned type, flags;
        uint64_t off;
        uint32_t len;
        uint32_t want;
    } rows[] = {
        {"read past the end", false, NBD_CMD_READ, 0, SIZE - 512, 1024, NBD_EINVAL},
        {"read far away", false, NBD_CMD_READ, 0, UINT64_MAX - 511, 512, NBD_EINVAL},
        {"read of 64 MiB", false, NBD_CMD_READ, 0, 0, 64u << 20, NBD_EINVAL},
        {"odd offset", false, NBD_CMD_READ, 0, 1, 512, NBD_EINVAL},
        {"odd length", false, NBD_CMD_READ, 0, 0, 513, NBD_EINVAL},
        {"write past the end", false, NBD_CMD_WRITE, 0, SIZE - 512, 1024, NBD_ENOSPC},
        {"odd write", false, NBD_CMD_WRITE, 0, 7, 512, NBD_EINVAL},
        {"trim past the end", false, NBD_CMD_TRIM, 0, SIZE, 512, NBD_ENOSPC},
        {"zeroes past the end", false, NBD_CMD_WRITE_ZEROES, 0, SIZE, 0xfffffe00, NBD_ENOSPC},
        {"fast zero, not offered", false, NBD_CMD_WRITE_ZEROES, NBD_FAST_ZERO, 0, 512,
         NBD_EINVAL},
        {"unknown flag", false, NBD_CMD_READ, 0x8000, 0, 512, NBD_EINVAL},
        {"no-hole of a write", false, NBD_CMD_WRITE, NBD_NO_HOLE, 0, 512, NBD_EINVAL},
        {"cache", false, NBD_CMD_CACHE, 0, 0, 512, NBD_EINVAL},
        {"unknown command", false, 999, 0, 0, 0, NBD_EINVAL},
        {"flush of a range", false, NBD_CMD_FLUSH, 0, 0, 512, NBD_EINVAL},
        {"status without contexts", false, NBD_CMD_BLOCK_STATUS, 0, 0, 512, NBD_EINVAL},
        {"don't-fragment without structured replies", false, NBD_CMD_READ, NBD_DF, 0, 512,
         NBD_EINVAL},
        {"write to what is read-only", true, NBD_CMD_WRITE, 0, 0, 512, NBD_EPERM},
        {"trim of what is read-only", true, NBD_CMD_TRIM, 0, 0, 512, NBD_EPERM},
        {"zeroes to what is read-only", true, NBD_CMD_WRITE_ZEROES, 0, 0, 512, NBD_EPERM},
    };
    for (unsigned read_only = 0; read_only < 2; read_only++) {
        open_world(&(struct nbd_world_opts){.size = SIZE, .is_read_only = read_only == 1});
        int fd = nbd_client_go(w.path, false);
        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
            if (rows[i].is_read_only != (read_only == 1)) {
                continue;
            }
            print_message("%s\n", rows[i].name);
            nbd_client_ask(fd, rows[i].type, rows[i].flags, 1000 + i, rows[i].off, rows[i].len,
                           rows[i].type == NBD_CMD_WRITE ? payload : NULL);
            assert_int_equal(nbd_client_simple(fd, 1000 + i), rows[i].want);
        }
        nbd_client_ask(fd, NBD_CMD_FLUSH, 0, 9, 0, 0, NULL); /* and it goes on */
        assert_int_equal(nbd_client_simple(fd, 9), 0);
        close(fd);
        nbd_world_done(&w);
    }
}

static void test_structured_reads_have_holes(void **state)
{
    static uint8_t out[1 << 20], in[1 << 20];
    fill(out, sizeof(out), 3);
    memset(out + 65536, 0, 131072);              /* a hole worth a chunk */
    memset(out + 524288, 0, 4096);               /* one that is not */
    memset(out + sizeof(out) - 65536, 0, 65536); /* one at the end */
    open_world(&(struct nbd_world_opts){.size = SIZE, .data = out, .n_data = sizeof(out)});
    int fd = nbd_client_go(w.path, true);
    for (unsigned df = 0; df < 2; df++) {
        unsigned n_data = 0, n_holes = 0;
        uint64_t covered = 0;
        struct nbd_chunk c = {0};
        memset(in, 0xee, sizeof(in));
        nbd_client_ask(fd, NBD_CMD_READ, df ? NBD_DF : 0, 40 + df, 0, sizeof(in), NULL);
        do {
            c = nbd_client_chunk(fd);
            assert_int_equal(c.cookie, 40 + df);
            uint64_t off = nbd_client_num(fd, 8);
            if (c.type == NBD_CHUNK_HOLE) {
                uint32_t len = (uint32_t)nbd_client_num(fd, 4);
                assert_int_equal(c.len, 12);
                assert_true(off + len <= sizeof(in));
                memset(in + off, 0, len);
                covered += len;
                n_holes++;
            } else {
                assert_int_equal(c.type, NBD_CHUNK_DATA);
                assert_true(off + c.len - 8 <= sizeof(in));
                nbd_client_get(fd, in + off, c.len - 8);
                covered += c.len - 8;
                n_data++;
            }
        } while ((c.flags & NBD_CHUNK_DONE) == 0);
        assert_int_equal(covered, sizeof(in));
        assert_memory_equal(in, out, sizeof(in));
        assert_int_equal(n_holes, df ? 0 : 2);
        assert_int_equal(n_data, df ? 1 : 2);
    }
    nbd_client_ask(fd, NBD_CMD_READ, 0, 50, SIZE, 512, NULL);
    struct nbd_chunk c = nbd_client_chunk(fd);
    assert_int_equal(c.type, NBD_CHUNK_ERROR);
    assert_int_equal(c.flags, NBD_CHUNK_DONE);
    assert_int_equal(c.len, 6);
    assert_int_equal(nbd_client_num(fd, 4), NBD_EINVAL);
    assert_int_equal(nbd_client_num(fd, 2), 0);
    nbd_client_ask(fd, NBD_CMD_READ, 0, 51, 0, 0, NULL);
    c = nbd_client_chunk(fd);
    assert_int_equal(c.type, NBD_CHUNK_NONE);
    assert_int_equal(c.len, 0);
    close(fd);
    nbd_world_done(&w);
}

/* Reading the file's second half fails: the answer says where. */
static void test_an_error_says_where(void **state)
{
    struct nbd_job j = {.r = {.type = NBD_CMD_READ, .cookie = 7, .off = 4096, .len = 8192},
                        .error = NBD_EIO,
                        .error_off = 8192};
    struct nbd_hs h = {.is_structured = true};
    buf_init(&j.head, 1024);
    nbd_reply(&j, &h);
    assert_int_equal(j.n_iov, 1);
    static const char want[] = "\146\216\63\357\0\1\200\2\0\0\0\0\0\0\0\7\0\0\0\16"
                               "\0\0\0\5\0\0\0\0\0\0\0\0\40\0";
    assert_int_equal(j.out[0].iov_len, sizeof(want) - 1);
    assert_memory_equal(j.out[0].iov_base, want, sizeof(want) - 1);
    buf_done(&j.head);
}

static void test_status_tells_data_from_holes(void **state)
{
    static uint8_t out[65536];
    enum { HOLE = NBD_STATE_HOLE | NBD_STATE_ZERO };
    fill(out, sizeof(out), 3);
    open_world(&(struct nbd_world_opts){.size = SIZE, .data = out, .n_data = sizeof(out)});
    AUTO_FD file = open(w.image, O_RDWR | O_CLOEXEC);
    assert_int_equal(pwrite(file, out, sizeof(out), 8 << 20), sizeof(out));
    int fd = nbd_client_go(w.path, true);
    static const uint32_t want[4][2] = {
        {65536, 0}, {(8 << 20) - 65536, HOLE}, {65536, 0}, {(8 << 20) - 65536, HOLE}};
    for (unsigned one = 0; one < 2; one++) {
        unsigned n = one ? 1 : 4;
        nbd_client_ask(fd, NBD_CMD_BLOCK_STATUS, one ? NBD_REQ_ONE : 0, 60 + one, 0, SIZE,
                       NULL);
        struct nbd_chunk c = nbd_client_chunk(fd);
        assert_int_equal(c.type, NBD_CHUNK_STATUS);
        assert_int_equal(c.flags, NBD_CHUNK_DONE);
        assert_int_equal(c.cookie, 60 + one);
        assert_int_equal(c.len, 4 + 8 * n);
        assert_int_equal(nbd_client_num(fd, 4), 1); /* the number that SET_META_CONTEXT gave */
        for (unsigned i = 0; i < n; i++) {
            assert_int_equal(nbd_client_num(fd, 4), want[i][0]);
            assert_int_equal(nbd_client_num(fd, 4), want[i][1]);
        }
    }
    nbd_client_ask(fd, NBD_CMD_BLOCK_STATUS, 0, 62, 0, 0, NULL);
    struct nbd_chunk c = nbd_client_chunk(fd);
    assert_int_equal(c.type, NBD_CHUNK_ERROR);
    close(fd);
    nbd_world_done(&w);
}

static void test_large_requests_go_in_parts(void **state)
{
    size_t n = NBD_MAX_PAYLOAD;
    uint8_t *out = malloc(n), *in = malloc(n);
    assert_true(out && in);
    fill(out, n, 9);
    open_world(&(struct nbd_world_opts){.size = UINT64_C(5) << 30});
    int fd = nbd_client_go(w.path, false);
    nbd_client_ask(fd, NBD_CMD_WRITE, NBD_FUA, 1, 4096, (uint32_t)n, out);
    assert_int_equal(nbd_client_simple(fd, 1), 0);
    nbd_client_ask(fd, NBD_CMD_READ, 0, 2, 4096, (uint32_t)n, NULL);
    assert_int_equal(nbd_client_simple(fd, 2), 0);
    nbd_client_get(fd, in, n);
    assert_memory_equal(in, out, n);
    /* Almost 4 GiB at once, of which almost nothing is there. */
    nbd_client_ask(fd, NBD_CMD_TRIM, NBD_FUA, 3, 0, 0xfffffe00, NULL);
    assert_int_equal(nbd_client_simple(fd, 3), 0);
    nbd_client_ask(fd, NBD_CMD_READ, 0, 4, 4096, (uint32_t)n, NULL);
    assert_int_equal(nbd_client_simple(fd, 4), 0);
    nbd_client_get(fd, in, n);
    memset(out, 0, n);
    assert_memory_equal(in, out, n);
    struct stat st;
    assert_int_equal(stat(w.image, &st), 0);
    assert_in_range(st.st_blocks, 0, 64); /* the space is free again */
    close(fd);
    free(out);
    free(in);
    nbd_world_done(&w);
}

/* Sixty-four requests in one piece: each is answered once, in whatever order. */
static void test_requests_in_a_row_are_all_answered(void **state)
{
    enum { N = 64 };
    static uint8_t out[N][4096], in[4096];
    open_world(&(struct nbd_world_opts){.size = SIZE});
    int fd = nbd_client_go(w.path, false);
    for (unsigned round = 0; round < 2; round++) {
        AUTO_BUF b;
        buf_init(&b, 1 << 20);
        for (unsigned i = 0; i < N; i++) {
            fill(out[i], 4096, i);
            nbd_client_put(&b, NBD_REQUEST_MAGIC, 4);
            nbd_client_put(&b, 0, 2);
            nbd_client_put(&b, round == 0 ? NBD_CMD_WRITE : NBD_CMD_READ, 2);
            nbd_client_put(&b, i, 8);
            nbd_client_put(&b, UINT64_C(4096) * i, 8);
            nbd_client_put(&b, 4096, 4);
            if (round == 0) {
                buf_add(&b, str_n((const char *)out[i], 4096));
            }
        }
        nbd_client_send(fd, b.p, b.n);
        uint64_t seen = 0;
        for (unsigned i = 0; i < N; i++) {
            assert_int_equal(nbd_client_num(fd, 4), NBD_SIMPLE_MAGIC);
            assert_int_equal(nbd_client_num(fd, 4), 0);
            uint64_t cookie = nbd_client_num(fd, 8);
            assert_in_range(cookie, 0, N - 1);
            assert_int_equal(seen & (UINT64_C(1) << cookie), 0);
            seen |= UINT64_C(1) << cookie;
            if (round == 1) {
                nbd_client_get(fd, in, 4096);
                assert_memory_equal(in, out[cookie], 4096);
            }
        }
        assert_true(seen == UINT64_MAX);
    }
    /* What was asked before DISC is still answered. */
    nbd_client_ask(fd, NBD_CMD_WRITE, NBD_FUA, 90, 0, 4096, out[0]);
    nbd_client_ask(fd, NBD_CMD_DISC, 0, 91, 0, 0, NULL);
    assert_int_equal(nbd_client_simple(fd, 90), 0);
    assert_true(nbd_client_is_at_end(fd));
    close(fd);
    nbd_world_done(&w);
}

/* ---- peers that mean no good ---- */

static void test_broken_requests_are_disconnected(void **state)
{
    static const struct {
        const char *name, *bytes;
    } rows[] = {
        {"bad magic", "\45\140\225\24\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0\0\0\2\0"},
        {"a write of 4 GiB",
         "\45\140\225\23\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0\377\377\376\0"},
    };
    open_world(&(struct nbd_world_opts){.size = SIZE});
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int fd = nbd_client_go(w.path, false);
        nbd_client_send(fd, rows[i].bytes, 28);
        assert_true(nbd_client_is_at_end(fd));
        close(fd);
    }
    nbd_client_check_alive(w.path);
    nbd_world_done(&w);
}

static void test_half_a_request_is_not_waited_for_long(void **state)
{
    static uint8_t payload[4096];
    open_world(&(struct nbd_world_opts){.size = SIZE, .stall_ns = 300 * NS_PER_MS});
    int idle = nbd_client_go(w.path, false); /* owes nothing: may be silent */
    int half = nbd_client_go(w.path, false), half_data = nbd_client_go(w.path, false);
    nbd_client_send(half, "\45\140\225\23\0\0", 6);
    AUTO_BUF b;
    buf_init(&b, 65536);
    nbd_client_put(&b, NBD_REQUEST_MAGIC, 4);
    nbd_client_put(&b, NBD_CMD_WRITE, 4);
    nbd_client_put(&b, 1, 8);
    nbd_client_put(&b, 0, 8);
    nbd_client_put(&b, 8192, 4);
    buf_add(&b, str_n((const char *)payload, sizeof(payload)));
    nbd_client_send(half_data, b.p, b.n);
    assert_true(nbd_client_is_at_end(half));
    assert_true(nbd_client_is_at_end(half_data));
    nbd_client_ask(idle, NBD_CMD_FLUSH, 0, 5, 0, 0, NULL);
    assert_int_equal(nbd_client_simple(idle, 5), 0);
    close(half);
    close(half_data);
    close(idle);
    nbd_client_check_alive(w.path);
    nbd_world_done(&w);
}

/* It asks for 1.6 GB and reads nothing: what is held for it is bounded, others are served, and it
 * is let go of in the end. */
static void test_a_slow_reader_holds_up_nobody(void **state)
{
    open_world(
        &(struct nbd_world_opts){.size = UINT64_C(64) << 20, .stall_ns = 1500 * NS_PER_MS});
    int slow = nbd_client_go(w.path, false);
    for (unsigned i = 0; i < 50; i++) {
        nbd_client_ask(slow, NBD_CMD_READ, 0, i, 0, NBD_MAX_PAYLOAD, NULL);
    }
    for (unsigned i = 0; i < 20; i++) {
        nbd_client_check_alive(w.path);
    }
    usleep(1800 * 1000);
    static uint8_t b[65536];
    size_t got = 0, n = 0;
    while ((n = nbd_client_read(slow, b, sizeof(b))) > 0) {
        got += n;
    }
    assert_in_range(got, 0, NBD_MAX_PAYLOAD); /* what was in the socket's buffer */
    close(slow);
    nbd_client_check_alive(w.path);
    nbd_world_done(&w);
}

/* Small requests whose answers nobody reads: what is not looked at stays with the client. */
static void test_answers_that_nobody_reads_are_few(void **state)
{
    enum { MANY = 200000 };
    static const char flush[28] = "\45\140\225\23\0\0\0\3";
    open_world(&(struct nbd_world_opts){.size = SIZE});
    int fd = nbd_client_go(w.path, false);
    unsigned n = 0;
    for (unsigned n_full = 0; n < MANY && n_full < 20;) {
        if (send(fd, flush, sizeof(flush), MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof(flush)) {
            n++;
            n_full = 0;
        } else {
            usleep(10000);
            n_full++;
        }
    }
    assert_in_range(n, NBD_IN_FLIGHT, MANY / 4); /* what the socket's buffers hold */
    nbd_client_check_alive(w.path);
    close(fd);
    nbd_world_done(&w);
}

/* Connects as another user; 0 when it is let in. */
static int try_as(uid_t uid)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (uid != geteuid() && setresuid(uid, uid, uid) != 0) {
            _exit(2);
        }
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        memcpy(a.sun_path, w.path, MIN(strlen(w.path), sizeof(a.sun_path) - 1));
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        char c = 0;
        if (connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0) {
            _exit(3);
        }
        _exit(recv(fd, &c, 1, 0) == 1 ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_only_the_guest_s_user_is_let_in(void **state)
{
    enum { GUEST = 65533, STRANGER = 65532 };
    bool is_root = geteuid() == 0;
    open_world(&(struct nbd_world_opts){.size = SIZE, .peer_uid = GUEST});
    assert_int_equal(chmod(w.dir.path, 0711), 0);
    assert_int_equal(chmod(w.path, 0666), 0);
    if (is_root) {
        assert_int_equal(try_as(0), 0);
        assert_int_equal(try_as(GUEST), 0);
        assert_int_equal(try_as(STRANGER), 1);
    } else {
        assert_int_equal(try_as(geteuid()), 1);
    }
    nbd_world_done(&w);
}

static void test_too_many_connections_are_refused(void **state)
{
    int fds[NBD_MAX_CONNS];
    open_world(&(struct nbd_world_opts){.size = SIZE});
    for (unsigned i = 0; i < NBD_MAX_CONNS; i++) {
        fds[i] = nbd_client_go(w.path, false);
    }
    int one_more = nbd_client(w.path);
    assert_true(nbd_client_is_at_end(one_more));
    close(one_more);
    close(fds[3]);
    for (unsigned i = 0; nbd_n_conns(w.nbd) == NBD_MAX_CONNS && i < 2000; i++) {
        usleep(1000);
    }
    fds[3] = nbd_client_go(w.path, false);
    for (unsigned i = 0; i < NBD_MAX_CONNS; i++) {
        nbd_client_ask(fds[i], NBD_CMD_FLUSH, 0, i, 0, 0, NULL);
        assert_int_equal(nbd_client_simple(fds[i], i), 0);
    }
    nbd_world_done(&w); /* with all of them connected */
    for (unsigned i = 0; i < NBD_MAX_CONNS; i++) {
        assert_true(nbd_client_is_at_end(fds[i]));
        close(fds[i]);
    }
}

static struct stopper {
    struct nbd *n;
    atomic_uint n_told;
} stopper;

static void on_stopped(void *ctx)
{
    atomic_fetch_add(&stopper.n_told, 1);
}

static void stop_here(void *ctx)
{
    nbd_stop(stopper.n, on_stopped, NULL);
}

static void test_stopping_tells_when_it_is_over(void **state)
{
    open_world(&(struct nbd_world_opts){.size = SIZE});
    int fd = nbd_client_go(w.path, false);
    stopper.n = w.nbd;
    atomic_store(&stopper.n_told, 0);
    loop_post(w.loop, stop_here, NULL);
    assert_true(nbd_client_is_at_end(fd));
    for (unsigned i = 0; atomic_load(&stopper.n_told) == 0 && i < 5000; i++) {
        usleep(1000);
    }
    assert_int_equal(atomic_load(&stopper.n_told), 1);
    assert_int_equal(nbd_n_conns(w.nbd), 0);
    close(fd);
    nbd_world_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_written_is_read),
        cmocka_unit_test(test_bad_requests_get_their_errors),
        cmocka_unit_test(test_structured_reads_have_holes),
        cmocka_unit_test(test_an_error_says_where),
        cmocka_unit_test(test_status_tells_data_from_holes),
        cmocka_unit_test(test_large_requests_go_in_parts),
        cmocka_unit_test(test_requests_in_a_row_are_all_answered),
        cmocka_unit_test(test_broken_requests_are_disconnected),
        cmocka_unit_test(test_half_a_request_is_not_waited_for_long),
        cmocka_unit_test(test_a_slow_reader_holds_up_nobody),
        cmocka_unit_test(test_answers_that_nobody_reads_are_few),
        cmocka_unit_test(test_only_the_guest_s_user_is_let_in),
        cmocka_unit_test(test_too_many_connections_are_refused),
        cmocka_unit_test(test_stopping_tells_when_it_is_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
