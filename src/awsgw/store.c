#include "awsgw/store.h"

#include "base/vec.h"
#include "model/keys.h"

const void *store_obj(const struct view_entry *e)
{
    return e ? e->obj : NULL;
}

static void unref(void *e)
{
    view_unref(e);
}

/* Under the view's lock: keeps the entry until the arena goes. */
static const struct view_entry *hold(struct arena *a, const struct view_entry *e)
{
    if (!e) {
        return NULL;
    }
    view_ref(e);
    if (arena_defer(a, unref, (void *)(uintptr_t)e) < 0) {
        view_unref(e);
        return NULL;
    }
    return e;
}

const struct view_entry *store_key(struct gw *gw, struct arena *a, struct str key)
{
    view_lock(gw->view);
    const struct view_entry *e = hold(a, view_get(gw->view, key));
    view_unlock(gw->view);
    return e;
}

const struct view_entry *store_spec(struct gw *gw, struct arena *a, const char *kind,
                                    struct str account, struct str id)
{
    return store_key(gw, a, key_spec(a, kind, account, id));
}

const struct view_entry *store_status(struct gw *gw, struct arena *a, const char *kind,
                                      struct str account, struct str id)
{
    return store_key(gw, a, key_status(a, kind, account, id));
}

struct entries store_prefix(struct gw *gw, struct arena *a, struct str prefix)
{
    VEC(const struct view_entry *) found = {0};
    view_lock(gw->view);
    omap_foreach_prefix(n, view_map(gw->view), prefix)
    {
        const struct view_entry *e = omap_value(n);
        if (e->obj && hold(a, e)) {
            vec_push(&found, e);
        }
    }
    view_unlock(gw->view);
    struct entries ret = {.n = found.n};
    ret.v = arena_array(a, found.n ? found.n : 1, sizeof(*ret.v));
    if (!ret.v) {
        ret.n = 0;
    } else if (found.n) {
        memcpy(ret.v, found.v, found.n * sizeof(*ret.v));
    }
    vec_free(&found);
    return ret;
}

struct entries store_list(struct gw *gw, struct arena *a, const char *kind, struct str account)
{
    return store_prefix(gw, a, key_spec_prefix(a, kind, account));
}

bool store_has(struct gw *gw, struct str key)
{
    view_lock(gw->view);
    bool is_there = view_get(gw->view, key) != NULL;
    view_unlock(gw->view);
    return is_there;
}
