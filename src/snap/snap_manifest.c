#include "snap/snap_manifest.h"

#include "base/bytes.h"
#include "crypto/digest.h"
#include "snap/snap_block.h"
#include "snap/snap_names.h"

#include <errno.h>
#include <string.h>

#define FLAG_ENCRYPTED 1u
#define VERSION        1u

static const uint8_t magic[4] = {'S', 'P', 'X', 'M'};

uint64_t snap_n_blocks(uint64_t size)
{
    return (size + SNAP_BLOCK - 1) / SNAP_BLOCK;
}

size_t snap_n_pages(uint64_t size)
{
    return (size_t)((snap_n_blocks(size) + SNAP_PAGE_BLOCKS - 1) / SNAP_PAGE_BLOCKS);
}

int snap_manifest_new(const struct snap_info *info, struct snap_manifest *ret)
{
    struct snap_manifest m = {.info = *info, .n_pages = snap_n_pages(info->size)};
    m.info.is_kept = m.info.is_damaged = false;
    m.pages = calloc(m.n_pages + 1, sizeof(*m.pages));
    if (!m.pages) {
        return -ENOMEM;
    }
    *ret = m;
    return 0;
}

void snap_manifest_done(struct snap_manifest *m)
{
    free(m->pages);
    m->pages = NULL;
}

void snap_manifest_count(struct snap_manifest *m)
{
    m->info.n_blocks = 0;
    for (size_t i = 0; i < m->n_pages; i++) {
        m->info.n_blocks += m->pages[i].n_stored;
    }
    m->info.n_zero = snap_n_blocks(m->info.size) - m->info.n_blocks;
}

/* Bytes, numbers little-endian:
 *   0 "SPXM", 4 u8 version, 5 u8 flags, 6 u16 zero, 8 u64 size, 16 u64 n_blocks, 24 u64 n_new,
 *  32 char id[24], 56 char account[16], 72 char parent[24], 96 u32 n_pages, 100 28 zeros,
 * 128 n_pages times { name[32], u32 n_stored }, at the end the SHA-256 of all before. */

void snap_manifest_encode(const struct snap_manifest *m, struct buf *out)
{
    uint8_t head[SNAP_MANIFEST_HEAD] = {0}, sum[SHA256_SIZE];
    const struct snap_info *i = &m->info;
    size_t begin = out->n;
    memcpy(head, magic, sizeof(magic));
    head[4] = VERSION;
    head[5] = i->is_encrypted ? FLAG_ENCRYPTED : 0;
    put_u64(head + 8, i->size);
    put_u64(head + 16, i->n_blocks);
    put_u64(head + 24, i->n_new);
    memcpy(head + 32, i->id, sizeof(i->id));
    memcpy(head + 56, i->account, sizeof(i->account));
    memcpy(head + 72, i->parent, sizeof(i->parent));
    put_u32(head + 96, (uint32_t)m->n_pages);
    buf_add(out, str_n((const char *)head, sizeof(head)));
    for (size_t k = 0; k < m->n_pages; k++) {
        uint8_t ref[SNAP_MANIFEST_REF];
        memcpy(ref, m->pages[k].name, SNAP_NAME);
        put_u32(ref + SNAP_NAME, m->pages[k].n_stored);
        buf_add(out, str_n((const char *)ref, sizeof(ref)));
    }
    if (buf_ok(out)) {
        sha256(str_n(out->p + begin, out->n - begin), sum);
        buf_add(out, str_n((const char *)sum, sizeof(sum)));
    }
}

/* Text that fills the rest of its place with zeros. */
static bool get_text(const uint8_t *p, size_t n, char *ret)
{
    size_t len = strnlen((const char *)p, n);
    memcpy(ret, p, n);
    for (size_t i = len; i < n; i++) {
        if (p[i]) {
            return false;
        }
    }
    return len < n;
}

static int decode_head(const uint8_t *p, struct snap_info *i)
{
    static const uint8_t zero[28];
    *i = (struct snap_info){.size = get_u64(p + 8),
                            .n_blocks = get_u64(p + 16),
                            .n_new = get_u64(p + 24),
                            .is_encrypted = p[5] & FLAG_ENCRYPTED};
    bool is_fine =
        memcmp(p, magic, sizeof(magic)) == 0 && p[4] == VERSION && !(p[5] & ~FLAG_ENCRYPTED) &&
        !p[6] && !p[7] && get_text(p + 32, sizeof(i->id), i->id) &&
        get_text(p + 56, sizeof(i->account), i->account) &&
        get_text(p + 72, sizeof(i->parent), i->parent) &&
        memcmp(p + 100, zero, sizeof(zero)) == 0 && i->size > 0 && i->size <= SNAP_SIZE_MAX &&
        i->n_new <= i->n_blocks && snap_check_id(str_c(i->id), NULL) == 0 &&
        snap_check_account(str_c(i->account), NULL) == 0 &&
        (!i->parent[0] || snap_check_id(str_c(i->parent), NULL) == 0);
    return is_fine ? 0 : -EBADMSG;
}

static bool decode_ref(const uint8_t *p, struct snap_page_ref *ref)
{
    memcpy(ref->name, p, SNAP_NAME);
    ref->n_stored = get_u32(p + SNAP_NAME);
    return ref->n_stored <= SNAP_PAGE_BLOCKS &&
           (ref->n_stored == 0) == snap_name_is_zero(ref->name);
}

int snap_manifest_decode(struct str bytes, struct snap_manifest *ret)
{
    const uint8_t *p = (const uint8_t *)bytes.p;
    AUTO_SNAP_MANIFEST m = {.pages = NULL};
    struct snap_info info;
    uint8_t sum[SHA256_SIZE];
    if (bytes.n < SNAP_MANIFEST_HEAD + sizeof(sum) || decode_head(p, &info) < 0 ||
        get_u32(p + 96) != snap_n_pages(info.size) ||
        bytes.n !=
            SNAP_MANIFEST_HEAD + snap_n_pages(info.size) * SNAP_MANIFEST_REF + sizeof(sum)) {
        return -EBADMSG;
    }
    sha256(str_n(bytes.p, bytes.n - sizeof(sum)), sum);
    if (memcmp(sum, p + bytes.n - sizeof(sum), sizeof(sum)) != 0) {
        return -EBADMSG;
    }
    int r = snap_manifest_new(&info, &m);
    if (r < 0) {
        return r;
    }
    for (size_t i = 0; i < m.n_pages; i++) {
        if (!decode_ref(p + SNAP_MANIFEST_HEAD + i * SNAP_MANIFEST_REF, &m.pages[i])) {
            return -EBADMSG;
        }
    }
    uint64_t n_blocks = info.n_blocks;
    snap_manifest_count(&m);
    if (m.info.n_blocks != n_blocks || n_blocks > snap_n_blocks(info.size)) {
        return -EBADMSG;
    }
    *ret = m;
    m.pages = NULL;
    return 0;
}
