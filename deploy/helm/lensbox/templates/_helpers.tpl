{{- define "lensbox.name" -}}
{{- ternary .Release.Name (printf "%s-lensbox" .Release.Name) (contains "lensbox" .Release.Name) | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "lensbox.selector" -}}
app.kubernetes.io/name: lensbox
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "lensbox.labels" -}}
{{ include "lensbox.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | trunc 63 | trimSuffix "-" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "lensbox.image" -}}
{{- $kind := ternary "cuda" "cpu" (gt (int .Values.gpu.count) 0) }}
{{- .Values.image.repository }}:{{ .Values.image.tag | default (printf "%s-%s" .Chart.AppVersion $kind) }}
{{- end }}
