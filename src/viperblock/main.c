#include "base/arena.h"
#include "base/file.h"
#include "model/config.h"
#include "model/presence.h"
#include "viperblock/vb.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>

#ifndef SPINIFEX_VERSION
#define SPINIFEX_VERSION "0"
#endif

/* Our helpers lie beside this program. */
static int find_helper(const char *name, char *out, size_t size, struct err *err)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n <= 0) {
        return fail(err, -errno, "OpenFailed", "/proc/self/exe: %m");
    }
    self[n] = '\0';
    char *slash = strrchr(self, '/');
    int len = snprintf(out, size, "%.*s/%s", (int)(slash ? slash - self : 0), self, name);
    if (len < 0 || (size_t)len >= size || access(out, X_OK) != 0) {
        return fail(err, -ENOENT, "OpenFailed", "%s is missing or cannot be run", out);
    }
    return 0;
}

/* The folder is made by "spx admin init" for our user; with uid_base = 0, or as root, it is
 * made here. */
static int prepare_folder(const struct config *cfg, const char *path, struct err *err)
{
    int rc = file_mkdirs(path, 0700, err);
    if (rc == 0 && cfg->uid_base != 0 && geteuid() == 0) {
        uid_t uid = (uid_t)(cfg->uid_base + CONFIG_UID_VIPERBLOCK);
        if (chown(path, uid, uid) != 0) {
            rc = fail(err, -errno, "ChownFailed", "%s: changing the owner: %m", path);
        }
    }
    return rc;
}

static int drop_root(const struct config *cfg, struct err *err)
{
    if (cfg->uid_base == 0 || geteuid() != 0) {
        return 0;
    }
    uid_t uid = (uid_t)(cfg->uid_base + CONFIG_UID_VIPERBLOCK);
    gid_t shared = (gid_t)cfg->uid_base; /* whose run folder takes our socket */
    return service_drop_user(uid, uid, &shared, 1, 0, err);
}

static uint32_t gateway_uid(const struct config *cfg)
{
    return cfg->uid_base == 0 ? 0 : (uint32_t)(cfg->uid_base + CONFIG_UID_AWSGW);
}

static int run(struct service *s, struct err *err)
{
    AUTO(config_freep) struct config *cfg = NULL;
    AUTO(arena_freep) struct arena *a = arena_new(ARENA_REQUEST_MAX);
    AUTO(kv_closep) struct kv *kv = NULL;
    char helper[PATH_MAX], data_exe[PATH_MAX];
    int rc = config_load(s->config_path, &cfg, err);
    if (rc != 0) {
        return rc;
    }
    const char *folder = config_data_path(a, cfg, "viperblock");
    rc = find_helper("spx-viperblock-import", helper, sizeof(helper), err);
    rc = rc != 0 ? rc : find_helper("spx-viperblock-data", data_exe, sizeof(data_exe), err);
    rc = rc != 0 ? rc : prepare_folder(cfg, folder, err);
    rc = rc != 0 ? rc : drop_root(cfg, err);
    rc = rc != 0 ? rc : kv_open_remote(config_run_path(a, cfg, "state.sock"), &kv, err);
    if (rc != 0) {
        return rc;
    }
    struct vb_opts o = {.kv = kv,
                        .loop = s->loop,
                        .service = s,
                        .data_dir = folder,
                        .socket_path = config_run_path(a, cfg, "viperblock.sock"),
                        .node = cfg->node,
                        .helper = helper,
                        .data_exe = data_exe,
                        .run_dir = config_run_path(a, cfg, "viperblock"),
                        .s3_socket = config_run_path(a, cfg, RUN_S3_SOCKET),
                        .root_key = config_data_path(a, cfg, DATA_VIPERBLOCK_ROOT_KEY),
                        .gateway_uid = gateway_uid(cfg),
                        .is_full_reported = cfg->is_full_reported};
    AUTO(vb_freep) struct vb *vb = NULL;
    rc = vb_new(&o, &vb, err);
    if (rc != 0) {
        return rc;
    }
    AUTO(presence_stopp)
    struct presence *presence UNUSED = presence_start(kv, cfg, "viperblock", SPINIFEX_VERSION);
    rc = service_run(s);
    vb_end_idle(vb);
    return rc;
}

int main(int argc, char **argv)
{
    struct service s;
    struct err err = ERR_INIT;
    int exit_status = 1;
    if (service_start(&s, "spx-viperblock", argc, argv, NULL, 0, &exit_status) != 0) {
        return exit_status;
    }
    exit_status = run(&s, &err) < 0 ? service_failed(&s, &err) : 0;
    service_done(&s);
    return exit_status;
}
