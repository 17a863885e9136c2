/* import_run.h — one import from the service's side: starts the sandboxed children, listens to
 * them, stops them.
 * Not here: what the children do (unpack.h, import_main.c), what becomes of the result
 *           (image.h).
 * Threads:  blocks a pool thread that lives as long as the process (the children die with it).
 * Memory:   nothing is kept; files are left to the caller, who removes the folder on failure.
 * Errors:   those of unpack.h, from the child; -ECANCELED "Cancelled"; -EIO "ToolFailed" with
 *           the tool's last line; -EINVAL "BadImage" when a child dies on the image. */
#pragma once
#include "base/err.h"
#include "viperblock/imgfmt.h"

struct import_opts {
    const char *helper; /* spx-viperblock-import */
    const char *folder; /* where 'data' and 'source' are made */
    int folder_fd;
    int source_fd;
    enum img_format format;
    uint64_t max_size;
    bool (*is_cancelled)(void *ctx);
    /* phase "read" (done: bytes of the source) or "convert" (done: per mille) */
    void (*progress)(void *ctx, const char *phase, uint64_t done);
    void *ctx;
};
struct import_result {
    enum img_format format;
    uint64_t size;
    char sha256[65];
};

MUST_CHECK int import_run(const struct import_opts *o, struct import_result *ret,
                          struct err *err);
