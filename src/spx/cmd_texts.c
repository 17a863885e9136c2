/* Completion for bash and the manual page, out of the tree of commands: never older than it. */
#include "base/buf.h"
#include "spx/cmds.h"
#include <stdio.h>

#define TEXT_MAX   (1u << 20)
#define MAX_DEPTH  6u
#define EVERYWHERE "--help --config --output"

struct walk {
    struct buf out;
    const char *names[MAX_DEPTH];
    size_t depth;
    void (*one)(struct walk *w, const struct spx_cmd *c);
};

static void walk(struct walk *w, const struct spx_cmd *c)
{
    if (w->depth == MAX_DEPTH) {
        return;
    }
    w->names[w->depth++] = c->name;
    w->one(w, c);
    for (size_t i = 0; i < c->n_sub; i++) {
        walk(w, &c->sub[i]);
    }
    w->depth--;
}

static void put_path(struct walk *w)
{
    for (size_t i = 0; i < w->depth; i++) {
        buf_fmt(&w->out, "%s%s", i > 0 ? " " : "", w->names[i]);
    }
}

static void complete_one(struct walk *w, const struct spx_cmd *c)
{
    buf_addc(&w->out, "    [\"");
    put_path(w);
    buf_addc(&w->out, "\"]=\"");
    for (size_t i = 0; i < c->n_sub; i++) {
        buf_fmt(&w->out, "%s ", c->sub[i].name);
    }
    for (size_t i = 0; i < c->n_opts; i++) {
        buf_fmt(&w->out, "%s ", c->opts[i].name);
    }
    buf_addc(&w->out, EVERYWHERE "\"\n");
}

/* What is no word of the tree (a value, a file) leaves the path as it is. */
static const char complete_tail[] =
    ")\n"
    "_spx() {\n"
    "    local path=spx word i\n"
    "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        [[ -z ${_spx_words[$path $word]+x} ]] || path=\"$path $word\"\n"
    "    done\n"
    "    mapfile -t COMPREPLY < <(compgen -W \"${_spx_words[$path]}\" -- "
    "\"${COMP_WORDS[COMP_CWORD]}\")\n"
    "}\n"
    "complete -o default -F _spx spx\n";

int cmd_completion(struct spx *s, struct err *err)
{
    if (strcmp(s->pos[0], "bash") != 0) {
        return spx_usage_error(s, "there is completion for bash only");
    }
    struct walk w = {.one = complete_one};
    buf_init(&w.out, TEXT_MAX);
    buf_addc(&w.out, "# Completion of spx for bash; made by 'spx completion bash'.\n"
                     "declare -gA _spx_words=(\n");
    walk(&w, &spx_root);
    buf_addc(&w.out, complete_tail);
    fputs(buf_cstr(&w.out), stdout);
    buf_done(&w.out);
    return 0;
}

/* roff: a line must not begin with a dot or a quote, and '-' is a hyphen unless it is escaped. */
static void put_roff(struct buf *out, const char *text)
{
    for (const char *p = text; *p; p++) {
        if (*p == '-' || *p == '\\') {
            buf_add_char(out, '\\');
        } else if ((*p == '.' || *p == '\'') && (p == text || p[-1] == '\n')) {
            buf_addc(out, "\\&");
        }
        buf_add_char(out, *p == '\\' ? 'e' : *p);
    }
}

static void manual_one(struct walk *w, const struct spx_cmd *c)
{
    if (c->n_sub > 0) {
        return;
    }
    buf_addc(&w->out, ".TP\n.B ");
    put_path(w);
    for (size_t i = 0; i < c->n_opts; i++) {
        buf_addc(&w->out, " [");
        put_roff(&w->out, c->opts[i].name);
        if (c->opts[i].arg) {
            buf_addc(&w->out, " ");
            put_roff(&w->out, c->opts[i].arg);
        }
        buf_addc(&w->out, "]");
    }
    if (c->args) {
        buf_addc(&w->out, " ");
        put_roff(&w->out, c->args);
    }
    buf_addc(&w->out, "\n");
    put_roff(&w->out, c->help);
    buf_addc(&w->out, "\n");
    if (c->more) {
        put_roff(&w->out, c->more);
        buf_addc(&w->out, "\n");
    }
    for (size_t i = 0; i < c->n_opts; i++) {
        buf_addc(&w->out, ".br\n\\ \\ \\fB");
        put_roff(&w->out, c->opts[i].name);
        buf_addc(&w->out, "\\fR ");
        put_roff(&w->out, c->opts[i].arg ? c->opts[i].arg : "");
        buf_addc(&w->out, ": ");
        put_roff(&w->out, c->opts[i].help);
        buf_addc(&w->out, "\n");
    }
}

int cmd_manual(struct spx *s, struct err *err)
{
    struct walk w = {.one = manual_one};
    buf_init(&w.out, TEXT_MAX);
    buf_addc(&w.out,
             ".TH SPX 1 \"\" \"Spinifex " SPX_VERSION "\" \"Spinifex\"\n"
             ".SH NAME\nspx \\- looks after a Spinifex cloud\n"
             ".SH SYNOPSIS\n.B spx\n\\fICOMMAND\\fR ... [\\-\\-config FILE] "
             "[\\-\\-output table|json] [\\-\\-help]\n"
             ".SH DESCRIPTION\n"
             "Sets up a node, starts and watches its services, and shows what there is. "
             "What users of the cloud do, they do with the AWS CLI or an SDK.\n"
             ".SH COMMANDS\n");
    walk(&w, &spx_root);
    buf_addc(&w.out,
             ".SH EXIT STATUS\n0: done. 1: failed; the message says what to do. 2: the "
             "arguments are wrong.\n"
             ".SH ENVIRONMENT\n.TP\n.B SPX_CONFIG\nthe configuration, when it is not "
             "/etc/spinifex/spinifex.toml\n"
             ".SH FILES\n/etc/spinifex/spinifex.toml, /var/lib/spinifex, /run/spinifex\n"
             ".SH SEE ALSO\n/usr/share/doc/spinifex/\n");
    fputs(buf_cstr(&w.out), stdout);
    buf_done(&w.out);
    return 0;
}
