# Completions of zarrfs for fish.
function __zarrfs_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l answer ($words[1] __complete -- $words (string unescape -- "$current"; or echo -- "$current") 2>/dev/null)
    switch "$answer[1]"
        case files
            # A command without completions of its own gets file names.
            complete -C "'' $current"
        case directories
            complete -C "'' $current" | string match -r '.*/$'
    end
    printf '%s\n' $answer[2..-1]
end
complete -c zarrfs -f -a '(__zarrfs_complete)'
