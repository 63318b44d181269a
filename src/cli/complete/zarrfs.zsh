#compdef zarrfs
# Completions of zarrfs for zsh.
_zarrfs() {
    local -a answer complete unfinished
    local line value
    answer=("${(@f)$("${(Q)words[1]/#\~/$HOME}" __complete -- "${(@Q)words[1,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    for line in "${(@)answer[2,-1]}"; do
        value=${${line%%$'\t'*}//\\/\\\\}
        value="${value//:/\\:}:${line#*$'\t'}"
        case ${line%%$'\t'*} in
        *[=/,:]) unfinished+=("$value") ;;
        *) complete+=("$value") ;;
        esac
    done
    ((${#complete})) && _describe -t values value complete
    # No blank follows.
    ((${#unfinished})) && _describe -t values value unfinished -S ''
    case $answer[1] in
    files) _files ;;
    directories) _files -/ ;;
    esac
}
if [ "$funcstack[1]" = _zarrfs ]; then
    _zarrfs "$@"
else
    compdef _zarrfs zarrfs
fi
