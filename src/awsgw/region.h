/* region.h — the one region and zone of this installation.
 * Not here: the operations (ops_region.c).
 * Threads:  no state.
 * Memory:   in the arena.
 * Errors:   none. */
#pragma once
#include "awsgw/gw.h"

static inline struct str region_name(const struct gw *gw)
{
    return str_c(gw->cfg->region);
}
static inline struct str zone_name(const struct gw *gw)
{
    return str_c(gw->cfg->az);
}
/* AWS's short form: "ap-southeast-2a" -> "apse2-az1". */
struct str zone_id(const struct gw *gw, struct arena *a);
