#include "snap/snap_page.h"

#include "snap/snap_names.h"

#include <errno.h>
#include <string.h>

static const uint8_t head[SNAP_PAGE_HEAD] = {'S', 'P', 'X', 'P', 1, 0, 0, 0};

size_t snap_page_encode(snap_page_names names, uint8_t *out, uint32_t *ret_stored)
{
    uint8_t *map = out + SNAP_PAGE_HEAD, *p = map + SNAP_PAGE_MAP;
    memcpy(out, head, sizeof(head));
    memset(map, 0, SNAP_PAGE_MAP);
    *ret_stored = 0;
    for (unsigned i = 0; i < SNAP_PAGE_BLOCKS; i++) {
        if (!snap_name_is_zero(names[i])) {
            map[i / 8] = (uint8_t)(map[i / 8] | 1u << (i % 8));
            memcpy(p, names[i], SNAP_NAME);
            p += SNAP_NAME;
            ++*ret_stored;
        }
    }
    return *ret_stored ? (size_t)(p - out) : 0;
}

int snap_page_decode(struct str bytes, snap_page_names ret, uint32_t *ret_stored)
{
    const uint8_t *map = (const uint8_t *)bytes.p + SNAP_PAGE_HEAD, *p = map + SNAP_PAGE_MAP;
    uint32_t n = 0;
    if (bytes.n < SNAP_PAGE_HEAD + SNAP_PAGE_MAP || memcmp(bytes.p, head, sizeof(head)) != 0) {
        return -EBADMSG;
    }
    for (unsigned i = 0; i < SNAP_PAGE_MAP; i++) {
        n += (uint32_t)__builtin_popcount(map[i]);
    }
    if (n == 0 || bytes.n != SNAP_PAGE_HEAD + SNAP_PAGE_MAP + (size_t)n * SNAP_NAME) {
        return -EBADMSG;
    }
    for (unsigned i = 0; i < SNAP_PAGE_BLOCKS; i++) {
        if (map[i / 8] >> (i % 8) & 1) {
            memcpy(ret[i], p, SNAP_NAME);
            if (snap_name_is_zero(ret[i])) {
                return -EBADMSG;
            }
            p += SNAP_NAME;
        } else {
            memset(ret[i], 0, SNAP_NAME);
        }
    }
    *ret_stored = n;
    return 0;
}
