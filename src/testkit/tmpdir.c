#include "testkit/tmpdir.h"
#include "base/file.h"
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void die(const char *what, const char *path)
{
    fprintf(stderr, "testkit: %s %s: %m\n", what, path);
    abort();
}

void tmpdir_init(struct tmpdir *t, const char *name)
{
    const char *base = getenv("TMPDIR");
    if (!base || base[0] != '/' || strlen(base) > 20) {
        base = "/tmp";
    }
    snprintf(t->path, sizeof(t->path), "%s/spx-%.20s-XXXXXX", base, name);
    if (!mkdtemp(t->path)) {
        die("mkdtemp", t->path);
    }
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    if (remove(path) < 0) {
        fprintf(stderr, "testkit: remove %s: %m\n",
                path); /* the test has ended: say it and go on */
    }
    return 0;
}

void tmpdir_done(struct tmpdir *t)
{
    if (t->path[0] == '\0') {
        return;
    }
    if (getenv("SPX_TEST_KEEP")) {
        fprintf(stderr, "testkit: kept %s\n", t->path);
    } else if (nftw(t->path, remove_one, 32, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) < 0) {
        fprintf(stderr, "testkit: remove %s: %m\n", t->path);
    }
    t->path[0] = '\0';
}

const char *tmpdir_path(const struct tmpdir *t, const char *name, char buf[PATH_MAX])
{
    if (snprintf(buf, PATH_MAX, "%s/%s", t->path, name) >= PATH_MAX) {
        die("path too long", t->path);
    }
    return buf;
}

const char *tmpdir_write(const struct tmpdir *t, const char *name, const char *text,
                         char buf[PATH_MAX])
{
    struct err err = ERR_INIT;
    if (file_write_atomic(tmpdir_path(t, name, buf), str_c(text), 0600, &err) < 0) {
        die(err.msg, buf);
    }
    return buf;
}
