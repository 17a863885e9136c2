/* snap_manifest.h — the manifest of a snapshot: what it is, and the names of its pages.
 * Not here: pages (snap_page.h), where manifests are stored.
 * Threads:  plain values.
 * Memory:   snap_manifest_decode() and _new() give; snap_manifest_done() frees.
 * Errors:   -EBADMSG for bytes that are none, were changed, or are another's; -ENOMEM.
 *           docs/formats/snapshot.md */
#pragma once
#include "base/buf.h"
#include "snap/snap.h"

struct snap_page_ref {
    uint8_t name[SNAP_NAME]; /* zeros: a page of holes */
    uint32_t n_stored;       /* entries that are no holes */
};
struct snap_manifest {
    struct snap_info info;
    struct snap_page_ref *pages;
    size_t n_pages;
};

#define SNAP_MANIFEST_HEAD 128u
#define SNAP_MANIFEST_REF  36u
#define SNAP_MANIFEST_MAX                                                                     \
    (SNAP_MANIFEST_HEAD + SNAP_SIZE_MAX / SNAP_BLOCK / SNAP_PAGE_BLOCKS * SNAP_MANIFEST_REF + \
     32)

uint64_t snap_n_blocks(uint64_t size);
size_t snap_n_pages(uint64_t size);

/* All holes. */
MUST_CHECK int snap_manifest_new(const struct snap_info *info, struct snap_manifest *ret);
void snap_manifest_done(struct snap_manifest *m);
#define AUTO_SNAP_MANIFEST AUTO(snap_manifest_done) struct snap_manifest

/* Sets n_blocks and n_zero of the info from the pages. */
void snap_manifest_count(struct snap_manifest *m);
void snap_manifest_encode(const struct snap_manifest *m, struct buf *out);
MUST_CHECK int snap_manifest_decode(struct str bytes, struct snap_manifest *ret);
