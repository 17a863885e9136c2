#include "viperblock/unpack.h"
#include "crypto/digest.h"
#include "viperblock/copy.h"
#include "viperblock/stream.h"
#include <errno.h>
#include <unistd.h>

#define MAX_LAYERS     4u
#define PROGRESS_EVERY (UINT64_C(4) << 20)

struct run {
    const struct unpack_opts *o;
    struct digest *digest;
    uint64_t n_read, n_written, n_told;
};

static void tell(struct run *r, bool is_last)
{
    if (r->o->progress && (is_last || r->n_read + r->n_written >= r->n_told + PROGRESS_EVERY)) {
        r->n_told = r->n_read + r->n_written;
        r->o->progress(r->o->ctx, r->n_read, r->n_written);
    }
}

static int on_read(void *ctx, struct str piece, struct err *err)
{
    struct run *r = ctx;
    digest_add(r->digest, piece);
    r->n_read += piece.n;
    tell(r, false);
    return 0;
}

/* Writes the rest of the stream to fd, leaving holes where it is zero; *ret_size: bytes of the
 * file. */
static int drain(struct run *r, struct stream *s, int fd, uint64_t *ret_size, struct err *err)
{
    AUTO_FREE char *buf = malloc(COPY_BLOCK);
    uint64_t off = 0;
    if (!buf) {
        return fail(err, -ENOMEM, "NoMemory", "no memory for a buffer");
    }
    for (;;) {
        size_t n = 0;
        while (n < COPY_BLOCK) {
            ssize_t got = stream_read(s, buf + n, COPY_BLOCK - n, err);
            if (got < 0) {
                return (int)got;
            }
            if (got == 0) {
                break;
            }
            n += (size_t)got;
        }
        if (n == 0) {
            break;
        }
        if (n > r->o->max_size - off) {
            return fail(err, -EFBIG, "ImageTooLarge",
                        "the image unpacks to more than %llu bytes",
                        (unsigned long long)r->o->max_size);
        }
        int rc = copy_write_sparse(fd, buf, n, off, err);
        if (rc != 0) {
            return rc;
        }
        off += n;
        r->n_written = off;
        tell(r, false);
    }
    *ret_size = off;
    return 0;
}

/* A disk is a whole number of sectors; a fixed VHD is a raw disk with a footer. */
static int finish_raw(struct run *r, uint64_t size, uint64_t *ret_size, struct err *err)
{
    char footer[IMG_FOOTER_SIZE];
    bool is_vhd = r->o->format == IMG_VPC;
    if (r->o->format != IMG_RAW && size > sizeof(footer) &&
        pread(r->o->data_fd, footer, sizeof(footer), (off_t)(size - sizeof(footer))) ==
            (ssize_t)sizeof(footer) &&
        img_is_fixed_vhd_footer(str_n(footer, sizeof(footer)))) {
        size -= sizeof(footer);
        is_vhd = false;
    }
    if (is_vhd) {
        return fail(err, -EINVAL, "BadImage", "the file is no VHD");
    }
    uint64_t whole = (size + 511) & ~UINT64_C(511);
    if (size == 0 || whole > r->o->max_size) {
        return size == 0
                   ? fail(err, -EINVAL, "BadImage", "the image is empty")
                   : fail(err, -EFBIG, "ImageTooLarge", "the image is larger than %llu bytes",
                          (unsigned long long)r->o->max_size);
    }
    if (ftruncate(r->o->data_fd, (off_t)whole) != 0) {
        return fail(err, -EIO, "WriteFailed", "the image cannot be sized: %m");
    }
    *ret_size = whole;
    return 0;
}

/* Peels layers off until a disk shows; *s is always the outermost stream that must be freed. */
static int find_disk(const struct unpack_opts *o, struct stream **s,
                     enum img_format *ret_format, struct str *ret_head, struct err *err)
{
    for (unsigned depth = 0;; depth++) {
        *s = stream_peek(*s);
        int rc = stream_head(*s, IMG_HEAD_SIZE, ret_head, err);
        if (rc != 0) {
            return rc;
        }
        enum img_format f = img_sniff(*ret_head);
        if (!img_is_layer(f)) {
            *ret_format = f;
            break;
        }
        if (depth == MAX_LAYERS) {
            return fail(err, -EINVAL, "BadImage", "the image is packed more than %u times",
                        MAX_LAYERS);
        }
        *s = f == IMG_GZ    ? stream_gz(*s)
             : f == IMG_XZ  ? stream_xz(*s)
             : f == IMG_ZST ? stream_zst(*s)
                            : stream_tar(*s);
    }
    bool is_said = o->format != IMG_UNKNOWN && !img_is_layer(o->format);
    if (is_said && o->format == IMG_RAW) {
        *ret_format = IMG_RAW; /* whatever it looks like */
    } else if (is_said && o->format == IMG_VPC && *ret_format != IMG_VPC) {
        *ret_format = IMG_RAW; /* the footer of a fixed VHD is looked for at the end */
    } else if (is_said && o->format != *ret_format) {
        return fail(err, -EINVAL, "BadImage", "the file is not %s: it is %s",
                    img_format_name(o->format),
                    *ret_format == IMG_UNKNOWN ? img_guess(*ret_head)
                                               : img_format_name(*ret_format));
    }
    return 0;
}

int unpack(const struct unpack_opts *o, struct unpack_result *ret, struct err *err)
{
    AUTO(digest_freep) struct digest *digest = digest_new(DIGEST_SHA256);
    struct run r = {.o = o, .digest = digest};
    AUTO(stream_freep) struct stream *s = stream_fd(o->in_fd, on_read, &r);
    struct str head;
    struct unpack_result out = {.format = IMG_UNKNOWN};
    uint64_t n = 0;
    int rc = find_disk(o, &s, &out.format, &head, err);
    if (rc == 0) {
        rc = img_check(out.format, head, o->max_size, &out.size, err);
    }
    if (rc == 0) {
        rc = drain(&r, s, out.format == IMG_RAW ? o->data_fd : o->spool_fd, &n, err);
    }
    if (rc == 0 && out.format == IMG_RAW) {
        rc = finish_raw(&r, n, &out.size, err);
    } else if (rc == 0 && ftruncate(o->spool_fd, (off_t)n) != 0) {
        rc = fail(err, -EIO, "WriteFailed", "the image cannot be sized: %m");
    }
    if (rc != 0) {
        return rc;
    }
    tell(&r, true);
    uint8_t sum[SHA256_SIZE];
    digest_end(digest, sum);
    digest_hex(sum, sizeof(sum), out.sha256);
    *ret = out;
    return 0;
}
