// The controller of TrainJobs in the first version that Wattloop knows, as Trainer's own main starts it. Of its webhooks,
// whose packages need an older controller-runtime, it has that of TrainJobs, with Trainer's own checks.
package main

import (
	"context"
	"flag"
	"log"

	"github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/controller"
	"github.com/kubeflow/trainer/v2/pkg/runtime"
	"github.com/kubeflow/trainer/v2/pkg/runtime/core"
	kubernetes "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	runner "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	options "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

type validator struct {
	runtimes map[string]runtime.Runtime
}

func (v validator) ValidateCreate(ctx context.Context, job *v1alpha1.TrainJob) (admission.Warnings, error) {
	return v.ValidateUpdate(ctx, nil, job)
}

func (v validator) ValidateUpdate(ctx context.Context, before, job *v1alpha1.TrainJob) (admission.Warnings, error) {
	warnings, errors := v.runtimes[runtime.RuntimeRefToRuntimeRegistryKey(job.Spec.RuntimeRef)].ValidateObjects(ctx, before, job)
	return warnings, errors.ToAggregate()
}

func (v validator) ValidateDelete(context.Context, *v1alpha1.TrainJob) (admission.Warnings, error) {
	return nil, nil
}

func main() {
	health := flag.String("health-probe-bind-address", ":8081", "address for probes")
	port := flag.Int("webhook-server-port", 9443, "port of the webhook")
	flag.Parse()
	runner.SetLogger(zap.New())

	types := kubernetes.NewScheme()
	must(scheme.AddToScheme(types))
	must(v1alpha1.AddToScheme(types))
	must(v1alpha2.AddToScheme(types))
	manager, err := runner.NewManager(runner.GetConfigOrDie(), runner.Options{
		Scheme:                 types,
		Client:                 client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Metrics:                server.Options{BindAddress: "0"},
		WebhookServer:          webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: *port}),
		HealthProbeBindAddress: *health,
	})
	must(err)
	stopped := runner.SetupSignalHandler()
	runtimes, err := core.New(stopped, manager.GetClient(), manager.GetFieldIndexer())
	must(err)
	_, err = controller.SetupControllers(manager, runtimes, options.Options{})
	must(err)
	must(runner.NewWebhookManagedBy(manager, &v1alpha1.TrainJob{}).WithValidator(validator{runtimes}).Complete())
	must(manager.AddReadyzCheck("readyz", manager.GetWebhookServer().StartedChecker()))
	must(manager.Start(stopped))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
