/* stream.h — bytes that are pulled through layers: descriptor, gzip, xz, zstd, tar member.
 * Not here: what is done with them (unpack.h).
 * Threads:  a stream belongs to one thread at a time.
 * Memory:   each stream_*() takes 'in' (also on failure) and gives a stream; stream_free()
 *           frees the whole chain. xz may use 256 MiB and zstd a window of 128 MiB, no more.
 * Errors:   -EINVAL "BadImage" for damaged input, -ENOTSUP "UnsupportedImage", -EIO
 *           "ReadFailed". */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include <stdint.h>

struct stream;

/* Fills up to n bytes; 0 = end. Blocks. */
MUST_CHECK ssize_t stream_read(struct stream *s, void *p, size_t n, struct err *err);
void stream_free(struct stream *s); /* NULL is fine */
DEFINE_CLEANUP(struct stream *, stream_free);

/* 'on_read' (may be NULL) sees every piece: hashing, progress; what it answers when not 0 ends
 * the reading. */
typedef int (*stream_seen_fn)(void *ctx, struct str piece, struct err *err);
struct stream *stream_fd(int fd, stream_seen_fn on_read,
                         void *ctx); /* the descriptor stays the caller's */
struct stream *stream_gz(struct stream *in);
struct stream *stream_xz(struct stream *in);
struct stream *stream_zst(struct stream *in);
/* The one disk file in an archive (ova or tar): a regular file that is no .ovf, .mf, ...
 * Members' names are never used as paths. Two disks, or none, are refused (also when the second
 * comes after the first was read: then at the end). */
struct stream *stream_tar(struct stream *in);

/* A stream whose first bytes can be looked at before they are read. */
struct stream *stream_peek(struct stream *in);
/* The next up to n (<= IMG_HEAD_SIZE) bytes; less only at the end. */
MUST_CHECK int stream_head(struct stream *peek, size_t n, struct str *ret, struct err *err);
