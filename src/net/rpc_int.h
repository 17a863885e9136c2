/* rpc_int.h — frames of rpc.h: building, taking apart, receiving and sending with descriptors.
 * Not here: who sends what when (rpc_server.c, rpc_client.c).
 * Threads:  a struct rpc_rx and a struct rpc_msg belong to one thread or lock at a time.
 * Memory:   a received frame is borrowed until the next rpc_rx_read(); its descriptors are
 *           given.
 * Errors:   -EPROTO for anything that is not a frame: the connection must end. */
#pragma once
#include "base/buf.h"
#include "net/rpc.h"

/* u32 size of the rest, u32 id, u8 kind, u8 descriptors, u8 length of the name; then name and
 * payload. */
#define RPC_HEAD_SIZE 11u
#define RPC_NAME_MAX  255u

enum rpc_kind { RPC_REQUEST = 1, RPC_ANSWER = 2, RPC_ERROR = 3, RPC_EVENT = 4 };

struct rpc_frame {
    uint32_t id; /* of the request; the stream of an event */
    enum rpc_kind kind;
    uint8_t n_fds;
    struct str name; /* method of a request, name of an error, else empty */
    struct str payload;
    size_t size; /* of the whole frame */
};

/* Looks at the front of 'in': 1 = a whole frame, 0 = more bytes are needed, -EPROTO.
 * 'is_server' tells which kinds may come. */
MUST_CHECK int rpc_frame_parse(struct str in, bool is_server, struct rpc_frame *ret);

/* A frame on its way out. */
struct rpc_msg {
    struct rpc_msg *next;
    size_t n, off; /* bytes, and how many are sent */
    size_t n_fds;  /* still to be sent, with the first byte; owned */
    int fds[RPC_MAX_FDS];
    char bytes[];
};

/* Gives a frame; NULL when it would be too large. */
struct rpc_msg *rpc_msg_new(enum rpc_kind kind, uint32_t id, struct str name,
                            struct str payload);
/* Duplicates descriptors into the message, once, before it is sent. */
MUST_CHECK int rpc_msg_add_fds(struct rpc_msg *m, const int *fds, size_t n_fds);
void rpc_msg_free(struct rpc_msg *m);
/* Sends what the socket takes. 1 = all sent, 0 = the socket is full, negative errno. */
MUST_CHECK int rpc_msg_send(struct rpc_msg *m, int sock);

/* The receiving side of a connection. */
struct rpc_rx {
    bool is_server;
    struct buf in;
    size_t off; /* frames before it are done */
    int fds[2 * RPC_MAX_FDS];
    size_t n_fds;
};

void rpc_rx_init(struct rpc_rx *rx, bool is_server);
void rpc_rx_done(struct rpc_rx *rx); /* closes descriptors that no frame took */
/* One recvmsg: 1 = bytes arrived, 0 = the peer closed, -EAGAIN, -EPROTO, other errno. Ends the
 * life of frames given before. */
MUST_CHECK int rpc_rx_read(struct rpc_rx *rx, int sock);
/* The next whole frame: 1 and its descriptors (given), 0 = none, -EPROTO. */
MUST_CHECK int rpc_rx_next(struct rpc_rx *rx, struct rpc_frame *ret, int fds[RPC_MAX_FDS]);

/* Errors as frames: the name is the frame's name; payload: i32 code, u16 length of the hint,
 * hint, message. */
struct rpc_msg *rpc_err_encode(uint32_t id, const struct err *err);
/* Fills *err (may be NULL) and *ret_code; -EPROTO when the payload is no error. */
MUST_CHECK int rpc_err_decode(const struct rpc_frame *f, int *ret_code, struct err *err);

/* Tests: other limits than RPC_STALL_NS and its check. Before the loop runs. */
void rpc_server_set_stall(struct rpc_server *s, uint64_t stall_ns, uint64_t check_ns);

/* The sockaddr of a path: -ENAMETOOLONG. */
struct sockaddr_un;
MUST_CHECK int rpc_addr(const char *path, struct sockaddr_un *ret, struct err *err);
