/* stream_int.h — how a layer of stream.h is made; seen by stream*.c only.
 * Not here: the layers' own state: each embeds struct stream as its first member.
 * Threads, memory, errors: see stream.h. */
#pragma once
#include "viperblock/stream.h"

struct stream {
    ssize_t (*read)(struct stream *s, void *p, size_t n, struct err *err);
    void (*free)(struct stream *s); /* own state only; the chain is freed by stream_free() */
    struct stream *in;              /* owned; NULL for a source */
};

#define STREAM_CHUNK 65536u

/* Allocates a layer of 'size' bytes (zeroed). */
void *stream_new(size_t size, struct stream *in,
                 ssize_t (*read)(struct stream *, void *, size_t, struct err *),
                 void (*free)(struct stream *)) __attribute__((returns_nonnull));
/* Reads exactly n bytes: 1, or 0 when the end came before the first byte; an end in the middle
 * is "BadImage". */
MUST_CHECK int stream_read_full(struct stream *s, void *p, size_t n, struct err *err);
