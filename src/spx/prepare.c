#include "spx/prepare.h"
#include "base/file.h"
#include "crypto/secret.h"
#include "spx/cmds.h"
#include "spx/dirs.h"
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#define MAX_KEY_FILE 4096u

int prepare_dirs(struct spx *s, struct err *err)
{
    const struct config *c = s->cfg;
    int r = dirs_make(c, err);
    if (r < 0 || !config_has_service(c, "predastore")) {
        return r;
    }
    for (size_t i = 0; i < c->predastore.n_drives; i++) {
        struct err e = ERR_INIT;
        if (dirs_make_drive(c, c->predastore.drives[i], &e) < 0) {
            fprintf(stderr, "drive %zu of the object store is left out: %s\n", i + 1, e.msg);
        }
    }
    return 0;
}

int prepare_certs(struct spx *s, struct err *err)
{
    bool is_changed = false;
    char why[ERR_MSG_MAX] = "";
    int r = certs_make(s->cfg, 30, &is_changed, why, sizeof(why), err);
    if (r == 0 && is_changed && access(s->cfg->path, F_OK) == 0) {
        fprintf(stderr, "the server certificate is new: %s\n", why);
    }
    return r;
}

/* True when the file is there, holds the same, and is its owner's only. */
static bool is_same_file(const char *path, struct str text)
{
    AUTO_FREE char *old = NULL;
    size_t n = 0;
    struct stat st;
    if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode) || (st.st_mode & 07777) != 0600 ||
        file_read(path, MAX_KEY_FILE, &old, &n, NULL) < 0) {
        return false;
    }
    bool is_same = str_eq(str_n(old, n), text);
    secret_wipe(old, n);
    return is_same;
}

/* A service that runs as another user has a copy of its own. */
static const struct {
    const char *service, *path;
    enum config_uid owner;
} key_copies[] = {
    {"predastore", DATA_PREDASTORE_ROOT_KEY, CONFIG_UID_PREDASTORE},
    {"viperblock", DATA_VIPERBLOCK_ROOT_KEY, CONFIG_UID_VIPERBLOCK},
};

int prepare_keys(struct spx *s, struct err *err)
{
    const struct config *c = s->cfg;
    AUTO_FREE char *text = NULL;
    size_t n = 0;
    int r =
        file_read(config_data_path(s->arena, c, DATA_ROOT_KEY), MAX_KEY_FILE, &text, &n, err);
    for (size_t i = 0; r >= 0 && i < ARRAY_LEN(key_copies); i++) {
        const char *to = config_data_path(s->arena, c, key_copies[i].path);
        if (!config_has_service(c, key_copies[i].service)) {
            continue;
        }
        if (!is_same_file(to, str_n(text, n))) {
            r = file_write_atomic(to, str_n(text, n), 0600, err);
        }
        r = r < 0 ? r : dirs_give(c, key_copies[i].path, key_copies[i].owner, err);
    }
    if (text) {
        secret_wipe(text, n);
    }
    return r < 0 ? r : 0;
}

int prepare_node(struct spx *s, struct err *err)
{
    int r = spx_config(s, err);
    r = r < 0 || !s->cfg->uid_base ? r : spx_need_root(s, err);
    if (r < 0) {
        return r;
    }
    if (access(config_data_path(s->arena, s->cfg, DATA_ROOT_KEY), F_OK) < 0) {
        fail(err, -ENOENT, "NotInitialised", "%s has no root key", s->cfg->data_dir);
        return err_hint(err, "run 'spx admin init' first");
    }
    r = prepare_dirs(s, err);
    r = r < 0 ? r : prepare_certs(s, err);
    return r < 0 ? r : prepare_keys(s, err);
}

int cmd_admin_prepare(struct spx *s, struct err *err)
{
    return prepare_node(s, err);
}
