/* import_main.c — spx-viperblock-import: the process that touches bytes of foreign images,
 * started by spx-viperblock. spx-viperblock-import unpack FORMAT MAX_SIZE      3 source, 4 data
 * file, 5 spool file, 6 report (a pipe) spx-viperblock-import info DRIVER FOLDER qemu-img info
 * of FOLDER/source as JSON on standard output spx-viperblock-import convert DRIVER FOLDER SIZE
 * FOLDER/source to FOLDER/data, progress on standard output The report is lines: "progress READ
 * WRITTEN", then "done FORMAT SIZE SHA256" or "error NAME message". */
#include "base/num.h"
#include "codec/json.h"
#include "crypto/digest.h"
#include "viperblock/sandbox.h"
#include "viperblock/unpack.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>

enum { FD_SOURCE = 3, FD_DATA, FD_SPOOL, FD_REPORT };

#define QEMU_IMG   "/usr/bin/qemu-img"
#define FILE_SLACK (UINT64_C(64) << 20) /* formats are larger than the disk in them */

static void progress(void *ctx, uint64_t n_read, uint64_t n_written)
{
    (void)ctx;
    dprintf(FD_REPORT, "progress %llu %llu\n", (unsigned long long)n_read,
            (unsigned long long)n_written);
}

static int run_unpack(struct str format, struct str max)
{
    struct err err = ERR_INIT;
    struct unpack_opts o = {
        .in_fd = FD_SOURCE, .data_fd = FD_DATA, .spool_fd = FD_SPOOL, .progress = progress};
    struct unpack_result r = {.format = IMG_UNKNOWN};
    int rc = img_format_parse(format, &o.format, &err);
    if (rc == 0 && num_u64(max, UINT64_MAX - FILE_SLACK, &o.max_size) != 0) {
        rc = fail(&err, -EINVAL, "BadArgument", "the size limit is no number");
    }
    rc = rc != 0 ? rc : sandbox_limits(o.max_size + FILE_SLACK, &err);
    /* The crypto library reads its configuration at its first use: no file can be opened
     * later. */
    uint8_t warm[SHA256_SIZE];
    sha256(STR(""), warm);
    rc = rc != 0 ? rc : sandbox_strict(&err);
    rc = rc != 0 ? rc : unpack(&o, &r, &err);
    if (rc == 0) {
        dprintf(FD_REPORT, "done %s %llu %s\n", img_format_name(r.format),
                (unsigned long long)r.size, r.sha256);
    } else {
        dprintf(FD_REPORT, "error %s %s\n", err.name ? err.name : "InternalError", err.msg);
    }
    _exit(rc == 0
              ? 0
              : 1); /* no exit handlers: they would make calls that are not allowed any more */
}

/* The source as qemu-img must open it: this driver, this file, and no backing file whatever the
 * header says. */
static const char *source_name(struct buf *b, struct str driver, const char *folder)
{
    AUTO_BUF path;
    struct jw w;
    buf_init(&path, 4096);
    buf_fmt(&path, "%s/source", folder);
    buf_addc(b, "json:");
    jw_init(&w, b);
    jw_obj(&w, NULL);
    jw_str(&w, "driver", driver);
    jw_bool(&w, "read-only", true);
    jw_null(&w, "backing");
    jw_obj(&w, "file");
    jw_cstr(&w, "driver", "file");
    jw_bool(&w, "read-only", true);
    jw_str(&w, "filename", buf_str(&path));
    jw_obj_end(&w);
    jw_obj_end(&w);
    return buf_cstr(b);
}

enum tool { TOOL_INFO, TOOL_CHECK, TOOL_CONVERT };

static int run_tool(enum tool tool, struct str driver, const char *folder, struct str size)
{
    struct err err = ERR_INIT;
    AUTO_BUF source, data;
    uint64_t max = 0;
    bool has_landlock = false;
    buf_init(&source, 16384);
    buf_init(&data, 4096);
    buf_fmt(&data, "%s/data", folder);
    const char *src = source_name(&source, driver, folder), *dst = buf_cstr(&data);
    int rc = num_u64(size, UINT64_MAX - FILE_SLACK, &max);
    rc = rc != 0 ? fail(&err, rc, "BadArgument", "the size limit is no number")
                 : sandbox_limits(max + FILE_SLACK, &err);
    rc = rc != 0 ? rc : sandbox_tool(folder, &has_landlock, &err);
    if (rc == 0) {
        signal(
            SIGXFSZ,
            SIG_IGN); /* a write past the limit shall be an error message, not a dead process */
        if (tool == TOOL_CHECK) {
            execl(QEMU_IMG, "qemu-img", "check", "--output=json", src, (char *)NULL);
        } else if (tool == TOOL_CONVERT) {
            execl(QEMU_IMG, "qemu-img", "convert", "-p", "-O", "raw", src, dst, (char *)NULL);
        } else {
            execl(QEMU_IMG, "qemu-img", "info", "--output=json", src, (char *)NULL);
        }
        rc = fail(&err, -errno, "ToolMissing",
                  QEMU_IMG " cannot be started (%m): install qemu-utils");
    }
    fprintf(stderr, "%s\n", err.msg);
    return 1;
}

int main(int argc, char **argv)
{
    struct str cmd = str_c(argc > 1 ? argv[1] : "");
    signal(SIGPIPE, SIG_IGN);
    if (str_eqc(cmd, "unpack") && argc == 4) {
        return run_unpack(str_c(argv[2]), str_c(argv[3]));
    }
    if (str_eqc(cmd, "info") && argc == 4) {
        return run_tool(TOOL_INFO, str_c(argv[2]), argv[3], STR("0"));
    }
    if (str_eqc(cmd, "check") && argc == 4) {
        return run_tool(TOOL_CHECK, str_c(argv[2]), argv[3], STR("0"));
    }
    if (str_eqc(cmd, "convert") && argc == 5) {
        return run_tool(TOOL_CONVERT, str_c(argv[2]), argv[3], str_c(argv[4]));
    }
    fprintf(stderr, "this program is started by spx-viperblock\n");
    return 2;
}
