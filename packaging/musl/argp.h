/*
 * Declarations that elfutils' helper library is compiled against where the C library has no argp (musl).
 * libelf calls none of these functions, so nothing has to define them.
 */
#include <errno.h>
#include <stdio.h>

#define ARGP_ERR_UNKNOWN E2BIG
#define ARGP_HELP_SEE 4
#define OPTION_ARG_OPTIONAL 1

typedef int error_t;

struct argp_state {
	const char *name;
};

struct argp_option {
	const char *name;
	int key;
	const char *arg;
	int flags;
	const char *doc;
	int group;
};

struct argp_child;

struct argp {
	const struct argp_option *options;
	error_t (*parser)(int key, char *arg, struct argp_state *state);
	const char *args_doc;
	const char *doc;
	const struct argp_child *children;
	char *(*help_filter)(int key, const char *text, void *input);
	const char *argp_domain;
};

void argp_error(const struct argp_state *state, const char *format, ...);
void argp_help(const struct argp *argp, FILE *stream, unsigned int flags, char *name);
