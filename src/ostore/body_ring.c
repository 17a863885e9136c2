#include "ostore/body_int.h"

#include "codec/hex.h"
#include "codec/json.h"
#include "crypto/crc.h"

#include <errno.h>
#include <stdio.h>

/* {"v":1,"crc":"0123abcd","ring": ... } and a line feed: the CRC32C is of the very bytes of the
 * ring, which therefore begin at a fixed place. */
#define HEAD      "{\"v\":1,\"crc\":\"00000000\",\"ring\":"
#define HEAD_SIZE (sizeof(HEAD) - 1)
#define CRC_AT    14

static uint32_t crc_of(struct str ring)
{
    return (uint32_t)crc_add(CRC_32C, 0, ring);
}

void body_ring_write(const struct body_ring *r, struct buf *out)
{
    AUTO_BUF ring;
    buf_init(&ring, BODY_RING_SIZE_MAX);
    char set[33];
    hex_encode_to(r->set_id, 16, set);
    struct jw w;
    jw_init(&w, &ring);
    jw_obj(&w, NULL);
    jw_cstr(&w, "set", set);
    jw_u64(&w, "seq", r->seq);
    jw_u64(&w, "current", r->current);
    jw_arr(&w, "keys");
    for (size_t i = 0; i < r->n; i++) {
        jw_obj(&w, NULL);
        jw_u64(&w, "id", r->v[i].id);
        jw_u64(&w, "create_ns", r->v[i].create_ns);
        jw_str(&w, "wrapped", r->v[i].wrapped);
        jw_obj_end(&w);
    }
    jw_arr_end(&w);
    jw_obj_end(&w);
    buf_fmt(out, "{\"v\":1,\"crc\":\"%08x\",\"ring\":", crc_of(buf_str(&ring)));
    buf_add(out, buf_str(&ring));
    buf_addc(out, "}\n");
    out->is_failed |= ring.is_failed;
}

static int bad(struct err *err, const char *why)
{
    return fail(err, -EBADMSG, "BadKeyRing", "the key ring of the object store: %s", why);
}

static int read_keys(const struct json *keys, struct arena *a, struct body_ring *ret,
                     struct err *err)
{
    bool has_current = false;
    if (json_type(keys) != JSON_T_ARRAY || json_len(keys) < 1 ||
        json_len(keys) > BODY_KEYS_MAX) {
        return bad(err, "it has no keys, or too many");
    }
    for (ret->n = 0; ret->n < json_len(keys); ret->n++) {
        const struct json *j = json_at(keys, ret->n);
        struct body_ring_key *k = &ret->v[ret->n];
        uint64_t id = json_get_u64(j, "id", 0);
        *k = (struct body_ring_key){.id = (uint32_t)id,
                                    .create_ns = json_get_u64(j, "create_ns", 0),
                                    .wrapped = arena_str_dup(a, json_get_str(j, "wrapped"))};
        bool is_twice = false;
        for (size_t i = 0; i < ret->n; i++) {
            is_twice |= ret->v[i].id == k->id;
        }
        if (id == 0 || id > UINT32_MAX || is_twice || !str_is_set(k->wrapped)) {
            return bad(err, "a key of it cannot be");
        }
        has_current |= k->id == ret->current;
    }
    return has_current ? 0 : bad(err, "its current key is not there");
}

int body_ring_read(struct str text, struct arena *a, struct body_ring *ret, struct err *err)
{
    AUTO(json_freep) struct json *j = NULL;
    *ret = (struct body_ring){.n = 0};
    if (text.n > BODY_RING_SIZE_MAX || json_parse(text, &j, NULL) < 0) {
        return bad(err, "it is no JSON");
    }
    if (json_get_i64(j, "v", 0) > 1) {
        return fail(err, -ENOTSUP, "BadKeyRing",
                    "the key ring of the object store is of a later version");
    }
    char crc[9];
    if (text.n < HEAD_SIZE + 2 || memcmp(text.p, HEAD, CRC_AT) != 0 ||
        memcmp(text.p + CRC_AT + 8, &HEAD[CRC_AT + 8], HEAD_SIZE - CRC_AT - 8) != 0) {
        return bad(err, "its form is unknown");
    }
    (void)snprintf(crc, sizeof(crc), "%08x",
                   crc_of(str_n(text.p + HEAD_SIZE, text.n - HEAD_SIZE - 2)));
    if (memcmp(crc, text.p + CRC_AT, 8) != 0) {
        return bad(err, "its checksum is wrong");
    }
    const struct json *ring = json_get(j, "ring");
    uint64_t current = json_get_u64(ring, "current", 0);
    ret->seq = json_get_u64(ring, "seq", 0);
    ret->current = (uint32_t)current;
    if (current > UINT32_MAX || ret->seq == 0 ||
        hex_decode(json_get_str(ring, "set"), ret->set_id, 16) < 0) {
        return bad(err, "members are missing");
    }
    return read_keys(json_get(ring, "keys"), a, ret, err);
}
