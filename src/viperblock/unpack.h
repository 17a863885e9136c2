/* unpack.h — takes the disk out of what it came in: hash, layers, format check, sparse write.
 * Runs in the sandboxed child.
 * Not here: conversion of disk formats (qemu-img), the sandbox (sandbox.h), who asked
 *           (image.h). Every byte of the source is read once, in order (a pipe is fine): what
 *           was hashed and checked is what is written.
 * Threads:  blocks its caller.
 * Memory:   fixed buffers and those of stream.h.
 * Errors:   those of imgfmt.h and stream.h; -ENOSPC "DiskFull" before the file system is really
 *           full; -EIO "WriteFailed". */
#pragma once
#include "base/err.h"
#include "viperblock/imgfmt.h"

struct unpack_opts {
    int in_fd;
    int data_fd;            /* empty file: gets the bytes of a raw disk */
    int spool_fd;           /* empty file: gets an image that has to be converted */
    enum img_format format; /* IMG_UNKNOWN: find out */
    uint64_t max_size;      /* of the disk, and of anything unpacked on the way */
    void (*progress)(void *ctx, uint64_t n_read, uint64_t n_written);
    void *ctx;
};
struct unpack_result {
    enum img_format
        format;      /* IMG_RAW: 'data_fd' is the disk; else 'spool_fd' is to be converted */
    uint64_t size;   /* of the disk; 0 = the header does not say */
    char sha256[65]; /* of the source */
};

MUST_CHECK int unpack(const struct unpack_opts *o, struct unpack_result *ret, struct err *err);
