# Completions of zarrfs for bash.
_zarrfs() {
    local line=${COMP_LINE:0:COMP_POINT} words=() word piece lead answer candidate i
    # bash splits words at = and : too; what has no blank before it is one word.
    for ((i = 0; i <= COMP_CWORD; i++)); do
        piece=${line#"${line%%[![:space:]]*}"}
        word=${piece:0:${#COMP_WORDS[i]}}
        if ((i > 0)) && [[ $piece == "$line" ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
        line=${piece:${#word}}
    done
    # What bash does not replace, such as --path= of --path=sst.
    [[ $word == [=:] ]] && word=
    lead=${words[${#words[@]} - 1]%"$word"}

    mapfile -t answer < <("${words[0]/#\~/$HOME}" __complete --quoted -- "${words[@]}" 2>/dev/null)
    COMPREPLY=()
    for candidate in "${answer[@]:1}"; do
        candidate=${candidate%%$'\t'*}
        COMPREPLY+=("${candidate#"$lead"}")
    done
    if [[ ${#COMPREPLY[@]} -eq 0 ]]; then
        case ${answer[0]-} in
        files) compopt -o bashdefault -o default ;;
        directories) compopt -o dirnames ;;
        esac
    else
        # Blanks in names are quoted as those in file names.
        [[ "${COMPREPLY[*]}" != *[$' \\\'"$']* && ${#COMPREPLY[@]} -eq 1 ]] || compopt -o filenames
        case ${COMPREPLY[0]} in *[=/,:]) compopt -o nospace ;; esac
    fi
}
complete -o nosort -F _zarrfs zarrfs
