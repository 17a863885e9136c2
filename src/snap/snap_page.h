/* snap_page.h — a page of a manifest: the names of SNAP_PAGE_BLOCKS blocks, as bytes and in
 *           memory.
 * Not here: where it is stored.
 * Threads:  no state.
 * Memory:   buffers of the caller.
 * Errors:   -EBADMSG. There is one encoding of a page: what decodes encodes to the same bytes,
 *           so that equal pages have equal names. docs/formats/snapshot.md */
#pragma once
#include "snap/snap.h"

#define SNAP_PAGE_HEAD 8u
#define SNAP_PAGE_MAP  (SNAP_PAGE_BLOCKS / 8)
#define SNAP_PAGE_MAX  (SNAP_PAGE_HEAD + SNAP_PAGE_MAP + SNAP_PAGE_BLOCKS * SNAP_NAME)

typedef uint8_t snap_page_names[SNAP_PAGE_BLOCKS][SNAP_NAME];

/* Writes at most SNAP_PAGE_MAX bytes and says how many; *ret_stored entries are no holes.
 * Without any: 0 bytes, for such a page is not stored; its name is all zeros. */
size_t snap_page_encode(snap_page_names names, uint8_t *out, uint32_t *ret_stored);
MUST_CHECK int snap_page_decode(struct str bytes, snap_page_names ret, uint32_t *ret_stored);
