/* Frames of rpc.h. The first byte of the input says which side reads and in which pieces the
 * rest arrives. Invariants: a frame that is accepted is made of exactly its bytes (building it
 * again gives them); no shorter prefix of it is accepted or refused; in pieces through a socket
 * the same frames come out as from the whole; an error that is accepted survives a round trip.
 */
#include "net/rpc_int.h"
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_error(const struct rpc_frame *f)
{
    struct err err = ERR_INIT;
    int code = 0;
    if (rpc_err_decode(f, &code, &err) < 0) {
        assert(err.code == 0); /* refused before anything was said */
        return;
    }
    assert(code < 0 && code >= -4095 && err.code == code && err.name);
    struct rpc_msg *m = rpc_err_encode(f->id, &err);
    struct rpc_frame again;
    assert(m && rpc_frame_parse(str_n(m->bytes, m->n), false, &again) == 1);
    struct err err2 = ERR_INIT;
    int code2 = 0;
    int r = rpc_err_decode(&again, &code2, &err2);
    assert(r == 0 && code2 == code && strcmp(err2.msg, err.msg) == 0);
    assert(strcmp(err2.name, err.name) == 0 && err2.hint == err.hint);
    rpc_msg_free(m);
}

static void check_frame(const struct rpc_frame *f, struct str in, bool is_server)
{
    assert(f->size >= RPC_HEAD_SIZE && f->size <= in.n && f->size <= RPC_MAX_SIZE + 4u);
    assert(f->n_fds <= RPC_MAX_FDS && f->name.n <= RPC_NAME_MAX);
    struct rpc_msg *m = rpc_msg_new(f->kind, f->id, f->name, f->payload);
    assert(m && m->n == f->size);
    m->bytes[9] = (char)f->n_fds;
    assert(memcmp(m->bytes, in.p, m->n) == 0);
    rpc_msg_free(m);
    struct rpc_frame part;
    for (size_t n = 0; n < f->size; n += n < 64 ? 1 : f->size / 16 + 1) {
        assert(rpc_frame_parse(str_n(in.p, n), is_server, &part) == 0);
    }
    if (f->kind == RPC_ERROR) {
        check_error(f);
    }
}

/* Sums up what came: kinds, ids, sizes, in order. */
static uint64_t digest(uint64_t h, const struct rpc_frame *f)
{
    const uint64_t v[] = {f->id, f->kind, f->name.n, f->payload.n, f->size};
    for (size_t i = 0; i < ARRAY_LEN(v); i++) {
        h = (h ^ v[i]) * UINT64_C(0x100000001b3);
    }
    return h;
}

/* In pieces through a socket, without descriptors: a frame that promises some ends the
 * connection. */
static uint64_t through_socket(struct str in, bool is_server, size_t piece, bool *ret_is_bad)
{
    int sv[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sv) < 0) {
        abort();
    }
    struct rpc_rx rx;
    rpc_rx_init(&rx, is_server);
    uint64_t h = 0;
    bool is_bad = false;
    while (in.n > 0 && !is_bad) {
        size_t n = MIN(piece, in.n);
        ssize_t sent = send(sv[0], in.p, n, MSG_NOSIGNAL);
        assert(sent > 0);
        in = str_skip(in, (size_t)sent);
        int r = rpc_rx_read(&rx, sv[1]);
        assert(r == 1);
        struct rpc_frame f;
        int fds[RPC_MAX_FDS];
        while ((r = rpc_rx_next(&rx, &f, fds)) > 0) {
            h = digest(h, &f);
        }
        assert(r == 0 || r == -EPROTO);
        is_bad = r < 0;
    }
    rpc_rx_done(&rx);
    close(sv[0]);
    close(sv[1]);
    *ret_is_bad = is_bad;
    return h;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > 1 << 16) {
        return 0;
    }
    bool is_server = (data[0] & 1) != 0;
    size_t piece = 1 + (size_t)(data[0] >> 1) * 17;
    const struct str all = str_n((const char *)data + 1, size - 1);
    struct str in = all;
    uint64_t h = 0;
    struct rpc_frame f;
    int r = 0;
    while ((r = rpc_frame_parse(in, is_server, &f)) > 0 && f.n_fds == 0) {
        check_frame(&f, in, is_server);
        h = digest(h, &f);
        in = str_skip(in, f.size);
    }
    bool is_bad = false;
    uint64_t h2 = through_socket(all, is_server, piece, &is_bad);
    assert(h == h2);
    assert(is_bad == (r != 0)); /* refused, or descriptors that did not come */
    return 0;
}
