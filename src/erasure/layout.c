#include "erasure/layout.h"

#include "erasure/rs.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>

int layout_init(struct layout *l, uint64_t size, unsigned k, unsigned m, uint32_t unit,
                struct err *err)
{
    bool is_power = unit != 0 && (unit & (unit - 1)) == 0;
    if (k < 1 || k > RS_K_MAX || m > RS_M_MAX || !is_power || unit < LAYOUT_UNIT_MIN ||
        unit > LAYOUT_UNIT_MAX) {
        return fail(err, -EINVAL, "InvalidLayout",
                    "RS(%u,%u) in units of %" PRIu32 " bytes cannot be", k, m, unit);
    }
    if (size > LAYOUT_SIZE_MAX) {
        return fail(err, -EFBIG, "InvalidLayout", "an object of %" PRIu64 " bytes is too large",
                    size);
    }
    *l = (struct layout){.size = size, .unit = unit, .k = (uint8_t)k, .m = (uint8_t)m};
    return 0;
}

static uint64_t stripe_max(const struct layout *l)
{
    return (uint64_t)l->unit * l->k;
}

uint64_t layout_n_stripes(const struct layout *l)
{
    return (l->size + stripe_max(l) - 1) / stripe_max(l);
}

struct layout_stripe layout_stripe(const struct layout *l, uint64_t idx)
{
    assert(idx < layout_n_stripes(l));
    uint64_t off = idx * stripe_max(l), rest = MIN(stripe_max(l), l->size - off);
    uint64_t even = (rest + l->k - 1) / l->k;
    /* Rounding up cannot pass the unit, a multiple of the grain. */
    uint64_t unit =
        l->k == 1 && l->m == 0 ? rest : (even + LAYOUT_GRAIN - 1) / LAYOUT_GRAIN * LAYOUT_GRAIN;
    return (struct layout_stripe){.off = off,
                                  .shard_off = idx * l->unit,
                                  .size = (uint32_t)rest,
                                  .unit_size = (uint32_t)unit};
}

uint32_t layout_unit_stored(const struct layout *l, const struct layout_stripe *s,
                            unsigned shard)
{
    assert(shard < (unsigned)l->k + l->m);
    if (shard >= l->k) {
        return s->unit_size;
    }
    uint64_t from = (uint64_t)shard * s->unit_size;
    return from >= s->size ? 0 : (uint32_t)MIN((uint64_t)s->unit_size, s->size - from);
}

uint64_t layout_shard_size(const struct layout *l, unsigned shard)
{
    uint64_t n = layout_n_stripes(l);
    if (n == 0) {
        return 0;
    }
    struct layout_stripe last = layout_stripe(l, n - 1);
    return (n - 1) * l->unit + layout_unit_stored(l, &last, shard);
}

bool layout_next(const struct layout *l, uint64_t *off, uint64_t end, struct layout_piece *ret)
{
    end = MIN(end, l->size);
    if (*off >= end) {
        return false;
    }
    if (l->k == 1) { /* stripes follow each other in the shard */
        *ret = (struct layout_piece){
            .off = *off, .shard_off = *off, .n = end - *off, .stripe = *off / l->unit};
        *off = end;
        return true;
    }
    struct layout_stripe s = layout_stripe(l, *off / stripe_max(l));
    uint64_t in = *off - s.off, shard = in / s.unit_size, at = in % s.unit_size;
    uint64_t left = layout_unit_stored(l, &s, (unsigned)shard) - at;
    *ret = (struct layout_piece){.off = *off,
                                 .shard_off = s.shard_off + at,
                                 .n = MIN(left, end - *off),
                                 .stripe = *off / stripe_max(l),
                                 .shard = (unsigned)shard};
    *off += ret->n;
    return true;
}
