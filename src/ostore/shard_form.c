#include "ostore/shard_form.h"

#include "base/bytes.h"
#include "codec/hex.h"
#include "crypto/crc.h"
#include "erasure/layout.h"
#include "erasure/rs.h"
#include "ostore/shard.h"

#include <errno.h>
#include <stdio.h>

#define HEAD_MAGIC "SPXSHARD"
#define FOOT_MAGIC "SPXSHEND"
#define VERSION    1
#define CRC_AT     (SHARD_HEAD_USED - 4)

_Static_assert(SHARD_HEAD_USED == SHARD_FOOT_SIZE, "both are encoded alike");

static uint32_t crc_of(const uint8_t *p)
{
    return (uint32_t)crc_add(CRC_32C, 0, str_n((const char *)p, CRC_AT));
}

static void common_encode(const struct shard_head *h, const char *magic, uint8_t *out)
{
    memset(out, 0, SHARD_HEAD_USED);
    memcpy(out, magic, 8);
    put_u32(out + 8, VERSION);
    put_u32(out + 12, SHARD_HEAD_SIZE);
    memcpy(out + 16, h->set_id, 16);
    memcpy(out + 32, h->id, OREC_ID_SIZE);
    out[48] = h->k;
    out[49] = h->m;
    out[50] = h->shard;
    put_u32(out + 52, h->unit);
}

static bool is_zeros(const uint8_t *p, size_t n)
{
    uint8_t any = 0;
    for (size_t i = 0; i < n; i++) {
        any = (uint8_t)(any | p[i]);
    }
    return any == 0;
}

static int common_decode(const uint8_t *p, const char *magic, struct shard_head *ret)
{
    if (memcmp(p, magic, 8) != 0) {
        return -EBADMSG;
    }
    if (get_u32(p + 8) > VERSION && get_u32(p + CRC_AT) == crc_of(p)) {
        return -ENOTSUP;
    }
    if (get_u32(p + 8) != VERSION || get_u32(p + 12) != SHARD_HEAD_SIZE ||
        get_u32(p + CRC_AT) != crc_of(p) || p[51] != 0) {
        return -EBADMSG;
    }
    *ret = (struct shard_head){.k = p[48], .m = p[49], .shard = p[50], .unit = get_u32(p + 52)};
    memcpy(ret->set_id, p + 16, 16);
    memcpy(ret->id, p + 32, OREC_ID_SIZE);
    struct layout l;
    bool is_code = layout_init(&l, 0, ret->k, ret->m, ret->unit, NULL) == 0;
    return is_code && ret->shard < ret->k + ret->m ? 0 : -EBADMSG;
}

void shard_head_encode(const struct shard_head *h, uint8_t out[SHARD_HEAD_USED])
{
    common_encode(h, HEAD_MAGIC, out);
    put_u32(out + CRC_AT, crc_of(out));
}

int shard_head_decode(const uint8_t p[SHARD_HEAD_SIZE], struct shard_head *ret)
{
    int r = common_decode(p, HEAD_MAGIC, ret);
    if (r == 0 && (!is_zeros(p + 56, CRC_AT - 56) ||
                   !is_zeros(p + SHARD_HEAD_USED, SHARD_HEAD_SIZE - SHARD_HEAD_USED))) {
        r = -EBADMSG;
    }
    return r;
}

void shard_foot_encode(const struct shard_foot *f, uint8_t out[SHARD_FOOT_SIZE])
{
    common_encode(&f->head, FOOT_MAGIC, out);
    put_u64(out + 56, f->stored_size);
    put_u64(out + 64, f->data_size);
    put_u32(out + 72, f->n_units);
    put_u32(out + 76, f->table_crc);
    put_u32(out + CRC_AT, crc_of(out));
}

int shard_foot_decode(const uint8_t p[SHARD_FOOT_SIZE], struct shard_foot *ret)
{
    *ret = (struct shard_foot){.n_units = 0};
    int r = common_decode(p, FOOT_MAGIC, &ret->head);
    if (r < 0) {
        return r;
    }
    ret->stored_size = get_u64(p + 56);
    ret->data_size = get_u64(p + 64);
    ret->n_units = get_u32(p + 72);
    ret->table_crc = get_u32(p + 76);
    const struct shard_head *h = &ret->head;
    struct layout l;
    if (ret->stored_size > SHARD_SIZE_MAX || !is_zeros(p + 80, CRC_AT - 80) ||
        layout_init(&l, ret->stored_size, h->k, h->m, h->unit, NULL) < 0 ||
        layout_shard_size(&l, h->shard) != ret->data_size ||
        (ret->data_size + h->unit - 1) / h->unit != ret->n_units) {
        return -EBADMSG;
    }
    return 0;
}

bool shard_head_eq(const struct shard_head *a, const struct shard_head *b)
{
    return memcmp(a->set_id, b->set_id, 16) == 0 && memcmp(a->id, b->id, OREC_ID_SIZE) == 0 &&
           a->k == b->k && a->m == b->m && a->shard == b->shard && a->unit == b->unit;
}

void shard_name(const uint8_t id[OREC_ID_SIZE], unsigned shard, bool is_tmp,
                char buf[SHARD_NAME_SIZE])
{
    char hex[2 * OREC_ID_SIZE + 1];
    hex_encode_to(id, OREC_ID_SIZE, hex);
    (void)snprintf(buf, SHARD_NAME_SIZE, "%s%s.%u", is_tmp ? ".tmp-" : "", hex, shard);
}

bool shard_name_parse(const char *name, uint8_t ret_id[OREC_ID_SIZE], unsigned *ret_shard,
                      bool *ret_is_tmp)
{
    struct str s = str_c(name);
    *ret_is_tmp = str_has_prefixc(s, ".tmp-");
    s = str_skip(s, *ret_is_tmp ? 5 : 0);
    if (s.n < 2 * OREC_ID_SIZE + 2 || s.n > 2 * OREC_ID_SIZE + 3 ||
        s.p[2 * OREC_ID_SIZE] != '.' ||
        hex_decode(str_n(s.p, 2 * OREC_ID_SIZE), ret_id, OREC_ID_SIZE) < 0) {
        return false;
    }
    *ret_shard = 0;
    for (size_t i = 2 * OREC_ID_SIZE + 1; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9') {
            return false;
        }
        *ret_shard = 10 * *ret_shard + (unsigned)(s.p[i] - '0');
    }
    char again[SHARD_NAME_SIZE];
    shard_name(ret_id, *ret_shard, *ret_is_tmp, again);
    return *ret_shard < RS_UNITS_MAX && strcmp(again, name) == 0; /* one form only */
}
