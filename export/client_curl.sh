#!/usr/bin/env bash
# Asks a translator over TensorFlow Serving's REST interface with curl alone, in each form that its documentation has:
# https://www.tensorflow.org/tfx/serving/api_rest
#
#   ./client_curl.sh
#   ./client_curl.sh http://localhost:8501 translator
#
# Every command is shown with its answer. TEXT, MORE and TRANSLATION hold other texts, without quotation marks and
# backslashes.
set -euo pipefail

SERVER=${1:-http://localhost:8501}
MODEL=${2:-translator}
TEXT=${TEXT:-You are witnesses of these things.}
MORE=${MORE:-They found the stone rolled away from the tomb.}
TRANSLATION=${TRANSLATION:-Vosotros sois testigos de estas cosas.}
URL=$SERVER/v1/models/$MODEL

show() { # a heading, and a command
  printf '\n# %s\n$' "$1"
  shift
  for word; do
    case $word in
    *[!A-Za-z0-9_.:/-]*) printf ' %s' "${word@Q}" ;;
    *) printf ' %s' "$word" ;;
    esac
  done
  echo
  "$@"
  echo
}

predict() { # a heading, a body, and another model or version
  show "$1" curl -sS -d "$2" -X POST "${3:-$URL}:predict"
}

show 'The status of every version' curl -sS "$URL"
show 'The metadata: the signatures, their inputs and outputs' curl -sS "$URL/metadata"

predict 'Row format: the values of the only input' "{\"instances\": [\"$TEXT\"]}"
predict 'Row format: an object for each text' "{\"instances\": [{\"text\": \"$TEXT\"}]}"
predict 'Row format: a batch, of at most 32 texts' "{\"instances\": [\"$TEXT\", \"$MORE\"]}"
predict 'Column format: a list for each input' "{\"inputs\": {\"text\": [\"$TEXT\", \"$MORE\"]}}"
predict 'Column format: the list of the only input' "{\"inputs\": [\"$TEXT\", \"$MORE\"]}"
BASE64=$(printf %s "$TEXT" | base64 | tr -d '\n')
predict 'Bytes in base64, which need not be UTF-8' "{\"instances\": [{\"b64\": \"$BASE64\"}]}"
predict 'A version by its number' "{\"instances\": [\"$TEXT\"]}" "$URL/versions/1"
predict 'A signature by its name' "{\"signature_name\": \"serving_default\", \"instances\": [\"$TEXT\"]}"
# For these two: kformer export --signature n_best --signature score ...
SIGNATURES=$(curl -sS "$URL/metadata" | tr -d ' \n') # outputs have such names, too, but no inputs
if [[ $SIGNATURES == *'"n_best":{"inputs"'* ]]; then
  predict 'Outputs of several values' "{\"signature_name\": \"n_best\", \"instances\": [\"$TEXT\"]}"
fi
if [[ $SIGNATURES == *'"score":{"inputs"'* ]]; then
  PAIR="{\"text\": \"$TEXT\", \"translation\": \"$TRANSLATION\"}"
  predict 'Several inputs' "{\"signature_name\": \"score\", \"instances\": [$PAIR]}"
fi

show 'An error: a model that is not served' \
  curl -sS -i -d "{\"instances\": [\"$TEXT\"]}" -X POST "$SERVER/v1/models/no-such-model:predict"
show 'An error: a request without inputs' curl -sS -i -d '{"instances": []}' -X POST "$URL:predict"
