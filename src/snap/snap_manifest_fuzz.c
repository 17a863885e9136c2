/* Manifests, pages and heads from bytes of somebody else: what decodes encodes to the same
 * bytes. The first byte says which; the hash of a manifest is set right, so that what is
 * behind it is seen. */
#include "crypto/digest.h"
#include "snap/snap_head.h"
#include "snap/snap_manifest.h"
#include "snap/snap_page.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void manifest(char *p, size_t n)
{
    struct snap_manifest m = {.pages = NULL};
    AUTO_BUF b;
    buf_init(&b, SNAP_MANIFEST_MAX);
    if (n > 32) {
        sha256(str_n(p, n - 32), (uint8_t *)p + n - 32);
    }
    if (snap_manifest_decode(str_n(p, n), &m) == 0) {
        assert(m.n_pages == snap_n_pages(m.info.size));
        assert(m.info.n_blocks + m.info.n_zero == snap_n_blocks(m.info.size));
        snap_manifest_encode(&m, &b);
        assert(str_eq(buf_str(&b), str_n(p, n)));
    }
    snap_manifest_done(&m);
}

static void page(char *p, size_t n)
{
    static snap_page_names names;
    static uint8_t again[SNAP_PAGE_MAX];
    uint32_t n_stored = 0, n_again = 0;
    if (snap_page_decode(str_n(p, n), names, &n_stored) == 0) {
        assert(snap_page_encode(names, again, &n_again) == n && n_again == n_stored);
        assert(memcmp(again, p, n) == 0);
    }
}

static void head(char *p, size_t n)
{
    struct snap_head h;
    size_t end = snap_head_end(str_n(p, n));
    assert(end <= n);
    if (end && snap_head_parse(str_n(p, end), &h) == 0) {
        assert(h.status >= 100 && h.status < 600);
        assert(!(h.is_chunked && h.content_length >= 0));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    char *p = malloc(size); /* its own memory: reads past the end are seen */
    assert(p);
    memcpy(p, data + 1, size - 1);
    switch (data[0] % 3) {
    case 0: manifest(p, size - 1); break;
    case 1: page(p, size - 1); break;
    default: head(p, size - 1);
    }
    free(p);
    return 0;
}
