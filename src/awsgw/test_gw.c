#include "awsgw/test_gw.h"

#include "base/test.h"
#include "base/time.h"
#include "model/obj.h"

bool test_gw_open(struct gw *gw, struct tmpdir *dir, const char *name,
                  void (*on_change)(void *ctx, const struct view_entry *old,
                                    const struct view_entry *now))
{
    static const char *const prefixes[] = {"spec/", "status/", "node/", "claim/"};
    static struct view_ops ops = {.parse = model_parse, .free = model_free};
    struct err err = ERR_INIT;
    char path[PATH_MAX];
    ops.on_change = on_change;
    tmpdir_init(dir, name);
    if (kv_open_sqlite(tmpdir_path(dir, "state.db", path), &gw->kv, &err) < 0 ||
        view_open(gw->kv, prefixes, ARRAY_LEN(prefixes), &ops, NULL, 10 * NS_PER_S, &gw->view,
                  &err) < 0) {
        print_error("%s\n", err.msg);
        return false;
    }
    return true;
}

void test_gw_close(struct gw *gw, struct tmpdir *dir)
{
    view_close(gw->view);
    kv_close(gw->kv);
    tmpdir_done(dir);
}
