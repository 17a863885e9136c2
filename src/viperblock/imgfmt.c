#include "viperblock/imgfmt.h"
#include <errno.h>

#define QCOW_INCOMPAT_DIRTY    (UINT64_C(1) << 0)
#define QCOW_INCOMPAT_CORRUPT  (UINT64_C(1) << 1)
#define QCOW_INCOMPAT_EXTERNAL (UINT64_C(1) << 2)
#define QCOW_INCOMPAT_COMPRESS (UINT64_C(1) << 3)
#define QCOW_INCOMPAT_EXTL2    (UINT64_C(1) << 4)
#define QCOW_EXT_END           0u
#define QCOW_EXT_DATA_FILE     0x44415441u
#define QCOW_EXT_CRYPTO        0x0537be77u
#define VMDK_DESC_OFFSET       512u /* where readers look for the text whatever the header says */
#define VMDK_DESC_SIZE         (20u * 512u)
#define VMDK_NO_PARENT         "ffffffff"
#define VHD_FIXED              2u
#define VHD_DYNAMIC            3u

static const char *const format_names[] = {
#define X(e, n) [IMG_##e] = n,
    IMG_FORMATS(X)
#undef X
};

const char *img_format_name(enum img_format f)
{
    return (unsigned)f < IMG_N ? format_names[f] : "?";
}

int img_format_parse(struct str name, enum img_format *ret, struct err *err)
{
    if (str_is_empty(name)) {
        *ret = IMG_UNKNOWN;
        return 0;
    }
    if (str_ieqc(name, "ova") || str_ieqc(name, "vpc")) {
        *ret = str_ieqc(name, "ova") ? IMG_TAR : IMG_VPC;
        return 0;
    }
    for (unsigned i = 0; i < IMG_N; i++) {
        if (str_ieqc(name, format_names[i])) {
            *ret = (enum img_format)i;
            return 0;
        }
    }
    return fail(
        err, -EINVAL, "BadFormat",
        "'%.*s' is no image format: auto, raw, qcow2, vmdk, vhdx, vhd, ova, gz, xz, zst or tar",
        (int)MIN(name.n, (size_t)40), name.p);
}

const char *img_qemu_driver(enum img_format f)
{
    switch (f) {
    case IMG_RAW:
    case IMG_QCOW2:
    case IMG_VMDK:
    case IMG_VHDX: return format_names[f];
    case IMG_VPC: return "vpc";
    default: return NULL;
    }
}

bool img_is_layer(enum img_format f)
{
    return f == IMG_GZ || f == IMG_XZ || f == IMG_ZST || f == IMG_TAR;
}

static bool has_at(struct str s, size_t off, struct str magic)
{
    return s.n >= off + magic.n && memcmp(s.p + off, magic.p, magic.n) == 0;
}

static uint32_t be32(const char *p)
{
    const unsigned char *u = (const unsigned char *)p;
    return (uint32_t)u[0] << 24 | (uint32_t)u[1] << 16 | (uint32_t)u[2] << 8 | u[3];
}

static uint64_t be64(const char *p)
{
    return (uint64_t)be32(p) << 32 | be32(p + 4);
}

static uint32_t le32(const char *p)
{
    const unsigned char *u = (const unsigned char *)p;
    return (uint32_t)u[3] << 24 | (uint32_t)u[2] << 16 | (uint32_t)u[1] << 8 | u[0];
}

static uint64_t le64(const char *p)
{
    return (uint64_t)le32(p + 4) << 32 | le32(p);
}

enum img_format img_sniff(struct str head)
{
    static const struct {
        size_t off;
        struct str magic;
        enum img_format f;
    } magics[] = {
        {0, {"QFI\xfb", 4}, IMG_QCOW2},
        {0, {"KDMV", 4}, IMG_VMDK},
        {0, {"vhdxfile", 8}, IMG_VHDX},
        {0, {"conectix", 8}, IMG_VPC},
        {0, {"\x1f\x8b\x08", 3}, IMG_GZ},
        {0,
         {"\xfd"
          "7zXZ\0",
          6},
         IMG_XZ},
        {0, {"\x28\xb5\x2f\xfd", 4}, IMG_ZST},
        {257, {"ustar", 5}, IMG_TAR},
        {510, {"\x55\xaa", 2}, IMG_RAW},
        {32769, {"CD001", 5}, IMG_RAW},
    };
    for (size_t i = 0; i < ARRAY_LEN(magics); i++) {
        if (has_at(head, magics[i].off, magics[i].magic)) {
            return magics[i].f;
        }
    }
    return IMG_UNKNOWN;
}

const char *img_guess(struct str head)
{
    static const struct {
        size_t off;
        struct str magic;
        const char *what;
    } magics[] = {
        {0, {"BZh", 3}, "a bzip2 file"},
        {0, {"PK\x03\x04", 4}, "a zip file"},
        {0, {"7z\xbc\xaf", 4}, "a 7-Zip file"},
        {0, {"COWD", 4}, "an old ESX vmdk"},
        {0,
         {"# Disk DescriptorFile", 21},
         "a vmdk descriptor that names other files: import a monolithic or stream-optimized "
         "vmdk"},
        {0, {"QED\0", 4}, "a QED image"},
        {64, {"\x7f\x10\xda\xbe", 4}, "a VirtualBox VDI image"},
        {0, {"WithoutFreeSpace", 16}, "a Parallels image"},
        {0, {"WithouFreSpacExt", 16}, "a Parallels image"},
        {0, {"LUKS\xba\xbe", 6}, "a LUKS container"},
        {0,
         {"\x7f"
          "ELF",
          4},
         "a program"},
        {0, {"<!DOCTYPE", 9}, "a web page"},
        {0, {"<html", 5}, "a web page"},
        {0, {"<?xml", 5}, "an XML file"},
        {0, {"%PDF", 4}, "a PDF file"},
        {0, {"MSWIM", 5}, "a WIM archive"},
    };
    for (size_t i = 0; i < ARRAY_LEN(magics); i++) {
        if (has_at(head, magics[i].off, magics[i].magic)) {
            return magics[i].what;
        }
    }
    return head.n == 0 ? "empty" : "of no known format and has no boot signature";
}

static int check_size(uint64_t size, uint64_t max_size, uint64_t *ret, struct err *err)
{
    if (size == 0) {
        return fail(err, -EINVAL, "BadImage", "the disk in this image has no size");
    }
    if (size > max_size) {
        return fail(err, -EFBIG, "ImageTooLarge",
                    "the disk in this image has %llu bytes, the limit is %llu",
                    (unsigned long long)size, (unsigned long long)max_size);
    }
    *ret = size;
    return 0;
}

/* Layout: docs/interop/qcow2 of QEMU's documentation; all numbers big endian. */
static int check_qcow2(struct str h, uint64_t max_size, uint64_t *ret_size, struct err *err)
{
    if (h.n < 72) {
        return fail(err, -EINVAL, "BadImage", "the qcow2 header is cut short");
    }
    uint32_t version = be32(h.p + 4), bits = be32(h.p + 20), head_len = 72;
    uint64_t incompat = 0;
    if (version != 2 && version != 3) {
        return fail(err, -ENOTSUP, "UnsupportedImage", "qcow version %u is not supported",
                    version);
    }
    if (version == 3) {
        if (h.n < 104) {
            return fail(err, -EINVAL, "BadImage", "the qcow2 header is cut short");
        }
        incompat = be64(h.p + 72);
        head_len = be32(h.p + 100);
    }
    if (be64(h.p + 8) != 0 || be32(h.p + 16) != 0) {
        return fail(err, -EINVAL, "BadImage",
                    "the image has a backing file: flatten it first (qemu-img convert)");
    }
    if (incompat & QCOW_INCOMPAT_EXTERNAL) {
        return fail(err, -EINVAL, "BadImage", "the image keeps its data in another file");
    }
    if (be32(h.p + 32) != 0) {
        return fail(err, -ENOTSUP, "UnsupportedImage",
                    "the image is encrypted: decrypt it first");
    }
    if (incompat & QCOW_INCOMPAT_CORRUPT) {
        return fail(err, -EINVAL, "BadImage",
                    "the image is marked as corrupt: repair it first (qemu-img check -r all)");
    }
    if (incompat & ~(QCOW_INCOMPAT_DIRTY | QCOW_INCOMPAT_COMPRESS | QCOW_INCOMPAT_EXTL2)) {
        return fail(err, -ENOTSUP, "UnsupportedImage",
                    "the image uses qcow2 features that are not supported (%llx)",
                    (unsigned long long)incompat);
    }
    if (bits < 9 || bits > 21 || head_len < 72 || head_len > 4096 || head_len % 8 != 0) {
        return fail(err, -EINVAL, "BadImage", "the qcow2 header is damaged");
    }
    for (size_t off = head_len; off + 8 <= h.n;) {
        uint32_t type = be32(h.p + off), len = be32(h.p + off + 4);
        if (type == QCOW_EXT_END) {
            break;
        }
        if (type == QCOW_EXT_DATA_FILE || type == QCOW_EXT_CRYPTO) {
            return fail(err, -EINVAL, "BadImage",
                        "the image names another data file or encryption keys");
        }
        if (len > (UINT64_C(1) << bits) || len > h.n - off - 8) {
            return fail(err, -EINVAL, "BadImage",
                        "an extension of the qcow2 header is too long");
        }
        off += 8 + (((size_t)len + 7) & ~(size_t)7);
    }
    return check_size(be64(h.p + 24), max_size, ret_size, err);
}

/* The text inside a vmdk must not name a parent, and must describe a disk in one file. Readers
 * search the text for these words wherever they stand, in comments too: so does this. */
static int check_vmdk_text(struct str text, struct err *err)
{
    text = str_cut(text, '\0');
    if (text.n == 0) {
        return 0;
    }
    bool is_alone = str_find_str(text, STR("parentFileNameHint")) < 0;
    for (struct str rest = text; is_alone;) {
        ptrdiff_t at = str_find_str(rest, STR("parentCID"));
        if (at < 0) {
            break;
        }
        rest = str_skip(rest, (size_t)at + sizeof("parentCID") - 1);
        is_alone = str_has_prefix(rest, STR("=" VMDK_NO_PARENT));
    }
    if (!is_alone) {
        return fail(err, -EINVAL, "BadImage",
                    "the vmdk depends on a parent disk: consolidate its snapshots first");
    }
    ptrdiff_t at = str_find_str(text, STR("createType="));
    struct str type =
        at < 0 ? STR("none")
               : str_cut(str_skip(text, (size_t)at + sizeof("createType=") - 1), '\n');
    type = str_trim(type);
    if (!str_eqc(type, "\"monolithicSparse\"") && !str_eqc(type, "\"streamOptimized\"")) {
        return fail(err, -ENOTSUP, "UnsupportedImage",
                    "the vmdk is of type %.*s: import a monolithic or stream-optimized vmdk",
                    (int)MIN(type.n, (size_t)40), type.p);
    }
    return 0;
}

/* VMware "Virtual Disk Format 5.0": SparseExtentHeader, little endian, sizes in sectors. */
static int check_vmdk(struct str h, uint64_t max_size, uint64_t *ret_size, struct err *err)
{
    if (h.n < 512) {
        return fail(err, -EINVAL, "BadImage", "the vmdk header is cut short");
    }
    uint64_t capacity = le64(h.p + 12), desc = le64(h.p + 28), desc_n = le64(h.p + 36);
    if (le32(h.p + 4) < 1 || le32(h.p + 4) > 3) {
        return fail(err, -ENOTSUP, "UnsupportedImage", "vmdk version %u is not supported",
                    le32(h.p + 4));
    }
    if (capacity == 0 || capacity > UINT64_MAX / 512) {
        return fail(err, -EINVAL, "BadImage",
                    "the vmdk is only a descriptor that names other files, or damaged");
    }
    /* Some readers look at a fixed place, others where the header points: check both. */
    int rc = check_vmdk_text(
        str_n(h.p + VMDK_DESC_OFFSET, MIN(h.n - VMDK_DESC_OFFSET, (size_t)VMDK_DESC_SIZE)),
        err);
    if (rc == 0 && desc != 0) {
        if (desc > h.n / 512 || desc_n > h.n / 512 || (desc + desc_n) * 512 > h.n) {
            return fail(err, -EINVAL, "BadImage",
                        "the vmdk's descriptor lies outside its head");
        }
        rc = check_vmdk_text(str_n(h.p + desc * 512, (size_t)desc_n * 512), err);
    }
    return rc != 0 ? rc : check_size(capacity * 512, max_size, ret_size, err);
}

/* VHD specification 1.0: a footer of 512 bytes, repeated at the front of dynamic disks; big
 * endian. */
static int check_vhd(struct str h, uint64_t max_size, uint64_t *ret_size, struct err *err)
{
    if (h.n < IMG_FOOTER_SIZE) {
        return fail(err, -EINVAL, "BadImage", "the VHD header is cut short");
    }
    if (be32(h.p + 60) != VHD_DYNAMIC) {
        return fail(err, -EINVAL, "BadImage",
                    "the VHD depends on a parent disk or is of an unknown type (%u)",
                    be32(h.p + 60));
    }
    return check_size(be64(h.p + 48), max_size, ret_size, err);
}

bool img_is_fixed_vhd_footer(struct str f)
{
    return f.n == IMG_FOOTER_SIZE && has_at(f, 0, STR("conectix")) &&
           be32(f.p + 60) == VHD_FIXED;
}

int img_check(enum img_format f, struct str head, uint64_t max_size, uint64_t *ret_size,
              struct err *err)
{
    *ret_size = 0;
    switch (f) {
    case IMG_QCOW2: return check_qcow2(head, max_size, ret_size, err);
    case IMG_VMDK: return check_vmdk(head, max_size, ret_size, err);
    case IMG_VPC: return check_vhd(head, max_size, ret_size, err);
    case IMG_VHDX: /* size and parents lie in tables behind the head: qemu-img's own refusals
                      and its answer are checked */
    case IMG_RAW: return 0;
    default: return fail(err, -ENOTSUP, "UnsupportedImage", "the file is %s", img_guess(head));
    }
}
