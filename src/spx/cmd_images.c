#include "base/file.h"
#include "base/time.h"
#include "codec/json.h"
#include "crypto/digest.h"
#include "loop/child.h"
#include "model/identity.h"
#include "model/instance.h"
#include "net/rpc.h"
#include "spx/cmds.h"
#include "spx/data.h"
#include "spx/progress.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define IMPORT_LIMIT (24 * 3600 * NS_PER_S)
#define STREAM       1u

/* Importing --------------------------------------------------------------------------------- */

static void on_event(void *ctx, uint32_t stream, struct str payload)
{
    AUTO(json_freep) struct json *j = NULL;
    if (stream == STREAM && json_parse(payload, &j, NULL) == 0) {
        struct str phase = json_get_str(j, "phase");
        bool is_read = str_eqc(phase, "read");
        progress_set(ctx, is_read ? "reading" : "writing", json_get_u64(j, "done", 0),
                     json_get_u64(j, "total", 0), is_read);
    }
}

/* The account that owns what is imported: --account by id or name, else the oldest. */
static int find_owner(struct spx *s, struct str *ret, struct err *err)
{
    const char *want = spx_value(s, "--account");
    struct account_list l = {0};
    const struct account *of = NULL;
    int r = spx_state(s, err);
    r = r < 0 ? r : identity_list_accounts(s->kv, s->arena, &l, err);
    if (r < 0) {
        return r;
    }
    for (size_t i = 0; i < l.n; i++) {
        const struct account *x = &l.v[i];
        if (want ? str_eqc(x->id, want) || str_eqc(x->name, want)
                 : !of || x->create_ns < of->create_ns) {
            of = x;
        }
    }
    if (!of) {
        return fail(err, -ENOENT, "NoSuchAccount", "there is no account %s", want ? want : "");
    }
    *ret = of->id;
    return 0;
}

static int import_fd(struct spx *s, int fd, const char *name, const char *description,
                     const char *sha256, struct err *err)
{
    static const char *const passed[][2] = {{"--arch", "arch"},
                                            {"--boot-mode", "boot_mode"},
                                            {"--format", "format"},
                                            {"--platform", "platform"},
                                            {"--root-device", "root_device"}};
    static const struct rpc_client_ops ops = {.on_event = on_event};
    AUTO_BUF args;
    AUTO(json_freep) struct json *j = NULL;
    struct str owner = STR_NONE;
    struct progress progress;
    struct rpc_reply reply = {0};
    struct jw w;
    int r = find_owner(s, &owner, err);
    if (r < 0) {
        return r;
    }
    buf_init(&args, 16384);
    jw_init(&w, &args);
    jw_obj(&w, NULL);
    jw_str(&w, "account", owner);
    jw_cstr(&w, "name", name);
    jw_cstr(&w, "description", description);
    for (size_t i = 0; i < ARRAY_LEN(passed); i++) {
        const char *v = spx_value_if(s, passed[i][0]);
        if (v) {
            jw_cstr(&w, passed[i][1], v);
        }
    }
    if (sha256) {
        jw_cstr(&w, "sha256", sha256);
    }
    jw_bool(&w, "is_public", !spx_is_set(s, "--private"));
    jw_u64(&w, "stream", STREAM);
    jw_obj_end(&w);
    progress_start(&progress);
    struct rpc_client *c =
        rpc_client_new(config_run_path(s->arena, s->cfg, "viperblock.sock"), &ops, &progress);
    r = rpc_call(c, STR("image.import"), buf_str(&args), &fd, 1, IMPORT_LIMIT, &reply, err);
    rpc_client_free(c);
    progress_end(&progress);
    if (r < 0) {
        return r;
    }
    r = json_parse(str_n(reply.payload, reply.n), &j, err);
    if (r == 0 && s->is_json) {
        printf("%.*s\n", (int)reply.n, reply.payload);
    } else if (r == 0) {
        printf("%.*s\n", STR_ARG(json_get_str(j, "image_id")));
    }
    rpc_reply_done(&reply);
    return r;
}

/* A file without a name in the data folder: nothing is left when this ends, however it ends. */
static int scratch_file(struct spx *s, int *ret_fd, struct err *err)
{
    const char *dir = s->cfg->data_dir;
    *ret_fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return *ret_fd < 0 ? fail(err, -errno, "OpenFailed", "a file in %s: %m", dir) : 0;
}

/* By the curl program, as nobody: what the far side sends is not handled with our rights. */
static int download(struct spx *s, const char *url, int fd, struct err *err)
{
    const char *const argv[] = {
        "curl", "--fail",   "--silent",    "--show-error", "--location", "--max-redirs",
        "5",    "--proto",  "=https,http", "--retry",      "3",          "--connect-timeout",
        "20",   "--output", "-",           "--",           url,          NULL};
    struct child_opts o = {.argv = argv,
                           .is_env_inherited = true, /* proxies */
                           .out_fd = fd,
                           .err_fd = 2,
                           .has_no_new_privs = true,
                           .death_signal = SIGKILL};
    struct progress progress;
    struct stat st = {0};
    pid_t pid = 0;
    int status = 0;
    if (geteuid() == 0) {
        o.is_user_set = true;
        o.uid = o.gid = 65534;
    }
    int r = child_spawn(&o, &pid, err);
    if (r < 0) {
        return err_hint(err, "install it: apt install curl");
    }
    progress_start(&progress);
    while (waitpid(pid, &status, WNOHANG) == 0) {
        const struct timespec wait = {.tv_nsec = 50000000};
        if (fstat(fd, &st) == 0) {
            progress_set(&progress, "download", (uint64_t)st.st_size, 0, true);
        }
        nanosleep(&wait, NULL);
    }
    progress_end(&progress);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        return fail(err, -EIO, "DownloadFailed", "downloading %s failed (curl: %d)", url,
                    WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    }
    return lseek(fd, 0, SEEK_SET) < 0 ? fail(err, -errno, "ReadFailed", "seek: %m") : 0;
}

/* "debian-12.qcow2.xz" -> "debian-12" */
static const char *name_from(struct spx *s, const char *path)
{
    static const char *const ends[] = {".gz",   ".xz",  ".zst",  ".tar", ".tgz", ".qcow2",
                                       ".vmdk", ".img", ".vhdx", ".ova", ".raw"};
    struct str n = str_c(path);
    n = str_cut(str_cut(n, '?'), '#');
    for (ptrdiff_t i = 0; (i = str_find(n, '/', 0)) >= 0;) {
        n = str_skip(n, (size_t)i + 1);
    }
    for (size_t i = 0; i < 2 * ARRAY_LEN(ends); i++) {
        struct str end = str_c(ends[i % ARRAY_LEN(ends)]);
        if (n.n > end.n && str_has_suffix(n, end)) {
            n.n -= end.n;
        }
    }
    return arena_cstr(s->arena, n);
}

int cmd_images_import(struct spx *s, struct err *err)
{
    const char *from = s->pos[0];
    const char *name = spx_value(s, "--name"), *description = spx_value(s, "--description");
    bool is_url = strncmp(from, "http://", 7) == 0 || strncmp(from, "https://", 8) == 0;
    AUTO_FD fd = -1;
    int r = spx_config(s, err);
    r = r < 0 || !s->cfg->uid_base ? r : spx_need_root(s, err);
    if (r < 0) {
        return r;
    }
    if (is_url && strncmp(from, "http://", 7) == 0 && !spx_value(s, "--sha256")) {
        return spx_usage_error(s, "an image over plain http needs --sha256 HEX");
    }
    if (is_url) {
        r = scratch_file(s, &fd, err);
        r = r < 0 ? r : download(s, from, fd, err);
    } else {
        fd = open(from, O_RDONLY | O_CLOEXEC);
        r = fd < 0 ? fail(err, -errno, "OpenFailed", "%s: %m", from) : 0;
    }
    return r < 0 ? r
                 : import_fd(s, fd, name ? name : name_from(s, from),
                             description ? description : "", spx_value(s, "--sha256"), err);
}

int cmd_images_remove(struct spx *s, struct err *err)
{
    AUTO_BUF args;
    AUTO(json_freep) struct json *j = NULL;
    struct jw w;
    buf_init(&args, 1024);
    jw_init(&w, &args);
    jw_obj(&w, NULL);
    jw_cstr(&w, "image_id", s->pos[0]);
    jw_obj_end(&w);
    int r = spx_call(s, "viperblock.sock", "image.remove", buf_str(&args), -1, 60 * NS_PER_S,
                     &j, err);
    if (r == 0 && !s->is_json) {
        printf("%s is being removed\n", s->pos[0]);
    } else if (r == 0) {
        puts("{}");
    }
    return r;
}

/* Building the small image ------------------------------------------------------------------ */

/* build.sh of an installed system, or of the source tree that this program was built in
 * (<root>/build/src/spx/spx). */
static int find_builder(struct arena *a, const char **ret_script, const char **ret_tool,
                        struct err *err)
{
    char self[400];
    const char *tree = getenv("SPX_SOURCE_DIR");
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    struct str dir = n > 0 ? str_n(self, (size_t)n) : STR("");
    const char *build = "";
    for (int i = 0; i < 4 && dir.n; i++) { /* spx, spx, src, build */
        while (dir.n && dir.p[dir.n - 1] != '/') {
            dir.n--;
        }
        dir.n -= dir.n > 0;
        build = i == 2 ? arena_cstr(a, dir) : build;
    }
    tree = tree ? tree : arena_cstr(a, dir);
    const char *script = arena_cstr(a, arena_fmt(a, "%s/packaging/mini/build.sh", tree));
    const char *tool = arena_cstr(a, arena_fmt(a, "%s/packaging/mini/minitool", build));
    if (access(script, X_OK) != 0) {
        script = SPX_DATADIR "/mini/build.sh";
        tool = SPX_DATADIR "/mini/minitool";
    }
    *ret_script = script;
    *ret_tool = access(tool, X_OK) == 0 ? tool : NULL;
    return access(script, X_OK) == 0
               ? 0
               : fail(err, -ENOENT, "NoSuchProgram", "%s is missing", script);
}

static int run_builder(const char *script, const char *tool, const char *out, const char *debs,
                       struct err *err)
{
    const char *argv[12] = {script, "--out", out};
    size_t n = 3;
    int status = 0;
    pid_t pid = 0;
    if (tool) {
        argv[n++] = "--tool";
        argv[n++] = tool;
    }
    if (debs) {
        argv[n++] = "--debs";
        argv[n++] = debs;
    }
    const struct child_opts o = {.argv = argv,
                                 .is_env_inherited = true,
                                 .out_fd = 2,
                                 .err_fd = 2,
                                 .death_signal = SIGTERM};
    int r = child_spawn(&o, &pid, err);
    if (r < 0) {
        return r;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    return WIFEXITED(status) && WEXITSTATUS(status) == 0
               ? 0
               : fail(err, -EIO, "BuildFailed", "%s failed (see above)", script);
}

static int hash_file(int fd, char hex[2 * SHA256_SIZE + 1], struct err *err)
{
    AUTO(digest_freep) struct digest *d = digest_new(DIGEST_SHA256);
    uint8_t sum[SHA256_SIZE];
    AUTO_FREE char *block = malloc(1u << 20);
    ssize_t n = -1;
    if (!block) {
        abort();
    }
    while ((n = read(fd, block, 1u << 20)) > 0) {
        digest_add(d, str_n(block, (size_t)n));
    }
    if (n < 0 || lseek(fd, 0, SEEK_SET) < 0) {
        return fail(err, -errno, "ReadFailed", "reading the image: %m");
    }
    digest_end(d, sum);
    digest_hex(sum, sizeof(sum), hex);
    return 0;
}

/* The image of that name that is there already. */
static int find_image(struct spx *s, const char *name, struct str *ret_id, struct err *err)
{
    struct recs images;
    int r = data_load(s, "spec/image/", &image_desc, &images, err);
    for (size_t i = 0; r == 0 && i < images.n; i++) {
        const struct image *x = recs_at(&images, struct image, i);
        if (str_eqc(x->name, name) && str_eqc(x->want, "present")) {
            *ret_id = x->id;
        }
    }
    return r;
}

int cmd_images_build(struct spx *s, struct err *err)
{
    const char *out = spx_value(s, "--out"), *script = NULL, *tool = NULL, *name = NULL;
    char hex[2 * SHA256_SIZE + 1];
    struct str id = STR_NONE;
    AUTO_FD fd = -1;
    if (strcmp(s->pos[0], "mini") != 0) {
        return spx_usage_error(s, "'%s' is no image that can be built: mini is", s->pos[0]);
    }
    int r = find_builder(s->arena, &script, &tool, err);
    if (r == 0 && !out) {
        out = "/var/cache/spinifex/mini/mini.raw";
        r = file_mkdirs("/var/cache/spinifex/mini", 0755, err);
    }
    r = r < 0 ? r : run_builder(script, tool, out, spx_value(s, "--debs"), err);
    if (r < 0) {
        return r;
    }
    fd = open(out, O_RDONLY | O_CLOEXEC);
    r = fd < 0 ? fail(err, -errno, "OpenFailed", "%s: %m", out) : hash_file(fd, hex, err);
    if (r < 0 || spx_is_set(s, "--no-import")) {
        if (r == 0) {
            puts(out);
        }
        return r;
    }
    /* The name says what is inside: built again from the same packages it is the same image. */
    name = arena_cstr(s->arena, arena_fmt(s->arena, "spinifex-mini-x86_64-%.8s", hex));
    r = find_image(s, name, &id, err);
    if (r == 0 && str_is_set(id)) {
        printf(s->is_json ? "{\"image_id\":\"%.*s\"}\n" : "%.*s\n", STR_ARG(id));
        return 0;
    }
    return r < 0 ? r
                 : import_fd(s, fd, name,
                             "Small Linux from Debian packages: busybox, dropbear, SSH", hex,
                             err);
}
