/* Header, footer and name of a shard, the key ring, the place of healing: the first byte
 * chooses. Its high bit: the checksum is made to fit, so that what lies behind it is reached.
 * Accepted means: what is written of it is the very same bytes. */
#include "base/bytes.h"
#include "codec/hex.h"
#include "crypto/crc.h"
#include "ostore/body_int.h"
#include "ostore/heal_int.h"
#include "ostore/shard_form.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t crc_of(const void *p, size_t n)
{
    return (uint32_t)crc_add(CRC_32C, 0, str_n(p, n));
}

static void head_or_foot(const uint8_t *data, size_t size, bool is_fixed, bool is_head)
{
    uint8_t p[SHARD_HEAD_SIZE] = {0}, again[SHARD_HEAD_USED];
    struct shard_head h;
    struct shard_foot f;
    memcpy(p, data, MIN(size, sizeof(p)));
    if (is_fixed) {
        put_u32(p + SHARD_HEAD_USED - 4, crc_of(p, SHARD_HEAD_USED - 4));
    }
    int rc = is_head ? shard_head_decode(p, &h) : shard_foot_decode(p, &f);
    assert(rc == 0 || rc == -EBADMSG || rc == -ENOTSUP);
    if (rc == 0) {
        if (is_head) {
            shard_head_encode(&h, again);
        } else {
            shard_foot_encode(&f, again);
            assert(f.data_size <= f.stored_size + f.head.unit && f.n_units <= UINT32_MAX / 4);
        }
        assert(memcmp(again, p, sizeof(again)) == 0);
    }
}

static void name(const uint8_t *data, size_t size)
{
    char text[80] = "", again[SHARD_NAME_SIZE];
    uint8_t id[OREC_ID_SIZE];
    unsigned shard = 0;
    bool is_tmp = false;
    memcpy(text, data, MIN(size, sizeof(text) - 1));
    if (shard_name_parse(text, id, &shard, &is_tmp)) {
        shard_name(id, shard, is_tmp, again);
        assert(strcmp(again, text) == 0 && shard < 24);
    }
}

static void ring(uint8_t *data, size_t size, bool is_fixed)
{
    static struct body_ring r, back;
    AUTO(arena_freep) struct arena *a = arena_new(4u << 20);
    const size_t head = strlen("{\"v\":1,\"crc\":\"00000000\",\"ring\":");
    if (is_fixed && size > head + 2) {
        char crc[9];
        (void)snprintf(crc, sizeof(crc), "%08x", crc_of(data + head, size - head - 2));
        memcpy(data + 14, crc, 8);
    }
    int rc = body_ring_read(str_n((const char *)data, size), a, &r, NULL);
    assert(rc == 0 || rc == -EBADMSG || rc == -ENOTSUP);
    if (rc == 0) {
        AUTO_BUF text;
        buf_init(&text, 2 * BODY_RING_SIZE_MAX);
        body_ring_write(&r, &text);
        if (buf_ok(&text) && text.n <= BODY_RING_SIZE_MAX) {
            assert(body_ring_read(buf_str(&text), a, &back, NULL) == 0);
            assert(back.n == r.n && back.seq == r.seq && back.current == r.current);
        }
    }
}

static void place(const uint8_t *data, size_t size)
{
    static struct heal_cursor c, back;
    const uint8_t id[16] = {0};
    if (heal_place_decode(str_n((const char *)data, size), id, &c) == 0) {
        AUTO_BUF text;
        buf_init(&text, 2 * HEAL_CURSOR_MAX + 256);
        heal_place_encode(id, &c, &text);
        assert(buf_ok(&text) && heal_place_decode(buf_str(&text), id, &back) == 0);
        assert(back.n == c.n && memcmp(back.p, c.p, c.n) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > 100000) {
        return 0;
    }
    bool is_fixed = data[0] & 0x80;
    uint8_t *copy = malloc(size);
    assert(copy);
    memcpy(copy, data + 1, size - 1);
    switch (data[0] & 7) {
    case 0: head_or_foot(copy, size - 1, is_fixed, true); break;
    case 1: head_or_foot(copy, size - 1, is_fixed, false); break;
    case 2: name(copy, size - 1); break;
    case 3: ring(copy, size - 1, is_fixed); break;
    default: place(copy, size - 1); break;
    }
    free(copy);
    return 0;
}
